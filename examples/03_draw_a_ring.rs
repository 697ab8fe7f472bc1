//! Lesson 3: pictures are drawn from the steps of the schedules, so they show what runs.
//!
//! A column is a rank and a row is one message latency. `out2 =in2 +=3 ->1` means: output chunk 2
//! starts as input chunk 2, rank 3's message is added to it, and it is sent to rank 1. Follow chunk
//! 0 along the diagonal.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole_pictures::draw;

fn main() {
    let pictures = [
        (
            Algorithm::Ring,
            Collective::AllReduce,
            "each chunk goes around twice: first to be summed, then to be distributed",
        ),
        (
            Algorithm::Tree,
            Collective::AllReduce,
            "fewer rounds for many ranks, but every link carries the whole vector",
        ),
        (
            Algorithm::OneShot,
            Collective::AllReduce,
            "one round, but every rank adds all four vectors",
        ),
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
    let svg = maypole_pictures::svg(&seven, "all-reduce by tree");
    assert!(svg.starts_with("<svg"));
    println!(
        "maypole_pictures::svg draws the same as an SVG figure: {} bytes for 7 ranks in a tree",
        svg.len()
    );
}
