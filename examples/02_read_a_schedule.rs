//! Lesson 2: an algorithm is a function, and a schedule is a list that can be read.
//!
//! Each rank computes its own list from three numbers: what is to be done, how many ranks there
//! are, which one it is. Nothing was sent yet, and nothing needs to be connected.

use maypole::algorithms::Algorithm;
use maypole::schedule::Step;
use maypole::schedule::collective::Collective;

fn main() {
    let (world, rank) = (4, 1);
    let schedule =
        Algorithm::Ring.schedule(Collective::AllReduce, world, rank).expect("a ring can do that");
    println!(
        "the vector is cut into {} chunks; rank {rank} of {world} does this:\n",
        schedule.chunks
    );
    for (nth, step) in schedule.steps.iter().enumerate() {
        // Five verbs are all there are.
        let words = match *step {
            Step::Send { from, to } => format!("post {from} to rank {to}"),
            Step::Recv { into, from } => format!("wait for rank {from}: {into} becomes what comes"),
            Step::RecvReduce { into, from } => {
                format!("wait for rank {from}: {into} becomes {into} + what comes")
            }
            Step::Copy { from, into } => format!("{into} becomes {from}"),
            Step::Reduce { from, into } => format!("{into} becomes {into} + {from}"),
        };
        println!("{nth:>3}  {words}");
    }

    let sends = schedule.steps.iter().filter(|step| matches!(step, Step::Send { .. })).count();
    assert_eq!(sends, 2 * (world - 1));
    println!(
        "\n{sends} chunks of a quarter each leave this rank: 2 (n-1)/n = {} of the vector",
        sends as f64 / 4.0
    );
}
