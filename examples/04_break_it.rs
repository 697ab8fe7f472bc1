//! Lesson 4: remove one step from a proved schedule, and read the flaw that the checker reports.
//!
//! The checker runs all ranks on symbols instead of numbers: each chunk holds the list of
//! contributions that were combined into it. So a proof holds for all numbers, types and lengths.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Placement, Step, input, output};

fn main() {
    let collective = Collective::AllReduce;
    let ring = Algorithm::Ring.schedules(collective, 3).expect("a ring can do that");
    let proof =
        verify(collective, &ring, Placement::Apart).expect("the table's algorithms are proved");
    println!("unchanged: {proof:?}\n");

    for nth in 0..ring[1].steps.len() {
        let mut broken = ring.clone();
        let step = broken[1].steps.remove(nth);
        let flaw = verify(collective, &broken, Placement::Apart)
            .expect_err("every step of a ring is needed");
        println!("without rank 1's step {nth}, {}:\n    {flaw}", words(step));
    }

    // Two ranks that add to the chunk that they are sending deadlock: a sent
    // chunk may not be overwritten until its receiver has taken it.
    let mut hasty = Algorithm::OneShot.schedules(collective, 2).expect("one shot can do that");
    for (rank, schedule) in hasty.iter_mut().enumerate() {
        let peer = 1 - rank;
        let all = output(0);
        let copy = Step::Copy { from: input(0), into: all };
        schedule.steps = vec![
            copy,
            Step::Send { from: all, to: peer },
            Step::RecvReduce { into: all, from: peer },
        ];
    }
    let flaw = verify(collective, &hasty, Placement::Apart).expect_err("this hangs");
    println!("\nsending a chunk that is about to change:\n    {flaw}");
}

fn words(step: Step) -> String {
    match step {
        Step::Send { from, to } => format!("sending {from} to rank {to}"),
        Step::Recv { into, from } => format!("receiving {into} from rank {from}"),
        Step::RecvReduce { into, from } => format!("adding rank {from}'s message to {into}"),
        Step::Copy { from, into } => format!("copying {from} to {into}"),
        Step::Reduce { from, into } => format!("adding {from} to {into}"),
    }
}
