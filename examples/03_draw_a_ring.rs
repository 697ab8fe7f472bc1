//! Lesson 3: pictures are made from the steps, so they show what runs.
//!
//! One column a rank, one row a round: `out2 =in2 +=3 ->1` is output chunk 2, which starts as input
//! chunk 2, takes in what rank 3 sends, and goes on to rank 1. Follow chunk 0 along the diagonal.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::draw;

fn main() {
    let pictures = [
        (
            Algorithm::Ring,
            Collective::AllReduce,
            "a chunk goes around twice: once to be summed, once to be shared",
        ),
        (
            Algorithm::Tree,
            Collective::AllReduce,
            "fewer rounds for many ranks, but the whole vector on every link",
        ),
        (Algorithm::OneShot, Collective::AllReduce, "one round, and every rank does all the work"),
    ];
    for (algorithm, collective, remark) in pictures {
        let schedules = algorithm.schedules(collective, 4).expect("the table says that it can");
        println!(
            "{algorithm} {}, 4 ranks: {remark}\n{}",
            collective.name(),
            draw::text(&schedules)
        );
    }

    let seven = Algorithm::Tree
        .schedules(Collective::AllReduce, 7)
        .expect("trees take any number of ranks");
    let svg = draw::svg(&seven, "all-reduce by tree");
    assert!(svg.starts_with("<svg"));
    println!("draw::svg has the same as a figure: {} bytes for 7 ranks in a tree", svg.len());
}
