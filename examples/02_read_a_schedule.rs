//! Lesson 2: an algorithm is a function, and its result is a schedule: a list that can be read.
//!
//! Each rank computes its list from the collective, the number of ranks and its own rank. Nothing
//! is sent, and no rank needs to be connected.

use maypole::algorithms::Algorithm;
use maypole::schedule::Step;
use maypole::schedule::collective::Collective;

fn main() {
    let world = 4;
    let rank = 1;
    let schedule =
        Algorithm::Ring.schedule(Collective::AllReduce, world, rank).expect("a ring can do that");
    println!(
        "the vector is cut into {} chunks; rank {rank} of {world} does this:\n",
        schedule.chunks
    );
    for (nth, step) in schedule.steps.iter().enumerate() {
        // There are five kinds of step.
        let words = match *step {
            Step::Send { from, to } => format!("post {from} to rank {to}"),
            Step::Recv { into, from } => {
                format!("wait for rank {from}: {into} becomes the message")
            }
            Step::RecvReduce { into, from } => {
                format!("wait for rank {from}: {into} becomes {into} + the message")
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
