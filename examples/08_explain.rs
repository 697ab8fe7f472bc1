//! Lesson 8: ask why a call runs as it does.
//!
//! Before anything is sent, every algorithm that can do the call is run on clocks, with the costs
//! of messages, bytes and cores that `maypole tune` has measured (or those built in), and the
//! cheapest is taken. An explanation shows all of them; once the call has run, it also shows how
//! good the prediction was.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, ReduceOp};

fn main() {
    let explanations = Communicator::run_local(2, |mut comm| {
        let mut pages = Vec::new();
        for bytes in [8, 4 << 20] {
            // From the first question on, calls are timed.
            let _ = comm.explain(Collective::AllReduce, bytes);
            let mut data = vec![1f32; bytes / 4];
            for _ in 0..20 {
                comm.all_reduce(&mut data, ReduceOp::Max).expect("all ranks call the same");
            }
            pages.push(comm.explain(Collective::AllReduce, bytes));
        }
        // A choice of one's own is obeyed, and explained as such.
        comm.set_algorithm(Some(Algorithm::Ring));
        pages.push(comm.explain(Collective::AllReduce, 8));
        pages
    });
    for explanation in &explanations[0] {
        println!("{explanation}");
    }

    let [small, long, asked] = &explanations[0][..] else { unreachable!("three questions") };
    for explanation in [small, long] {
        let chosen = explanation.chosen().expect("every collective has an algorithm");
        let measured = explanation.measured.expect("it has run");
        println!(
            "{} bytes by {}: {} ns predicted, {} ns at best",
            explanation.bytes, chosen.plan.algorithm, chosen.predicted_ns, measured.least_ns
        );
    }
    let asked = asked.chosen().expect("a ring can do that");
    let small = small.chosen().expect("every collective has an algorithm");
    println!(
        "8 bytes by ring would be {} ns: more hops than {}",
        asked.predicted_ns, small.plan.algorithm
    );
}
