//! Lesson 8: see why the tuner chose an algorithm.
//!
//! Before a new call sends anything, the tuner runs every algorithm that implements it on simulated
//! clocks and takes the cheapest. `maypole tune` measures the costs of messages, bytes and cores;
//! without its file, built-in costs serve. An explanation shows all candidates with their predicted
//! times, and, once the call has run, the measured time.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, ReduceOp};

fn main() {
    let explanations = Communicator::run_local(2, |mut comm| {
        let mut pages = Vec::new();
        for bytes in [8, 4 << 20] {
            // The first explanation of a call switches its timing on.
            let _ = comm.explain(Collective::AllReduce, bytes);
            let mut data = vec![1f32; bytes / 4];
            for _ in 0..20 {
                comm.all_reduce(&mut data, ReduceOp::Max).expect("all ranks call the same");
            }
            pages.push(comm.explain(Collective::AllReduce, bytes));
        }
        // An algorithm that is set by name overrules the tuner, and the explanation states it.
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
            explanation.bytes, chosen.plan.algorithm, chosen.predicted_ns, measured.median_ns
        );
    }
    let asked = asked.chosen().expect("a ring can do that");
    let small = small.chosen().expect("every collective has an algorithm");
    println!(
        "8 bytes by ring would be {} ns: more hops than {}",
        asked.predicted_ns, small.plan.algorithm
    );
}
