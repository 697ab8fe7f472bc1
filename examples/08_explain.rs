//! Lesson 8: see why the tuner chose an algorithm.
//!
//! Before a new call sends anything, the tuner runs every algorithm that implements it on simulated
//! clocks and takes the cheapest. `maypole tune` measures the costs of messages, bytes and cores;
//! without its file, built-in costs serve. An explanation shows all candidates with their predicted
//! times; the time that the call really takes is measured here beside them.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, ReduceOp};
use std::time::{Duration, Instant};

fn main() {
    let explanations = Communicator::run_local(2, |mut comm| {
        let mut pages = Vec::new();
        for bytes in [8, 4 << 20] {
            let mut data = vec![1f32; bytes / 4];
            let mut call = || {
                let start = Instant::now();
                comm.all_reduce(&mut data, ReduceOp::Max).expect("all ranks call the same");
                start.elapsed()
            };
            let least = (0..20).map(|_| call()).min().unwrap_or_default();
            pages.push((comm.explain(Collective::AllReduce, bytes), least));
        }
        // An algorithm that is set by name overrules the tuner, and the explanation states it.
        comm.set_algorithm(Some(Algorithm::Ring));
        pages.push((comm.explain(Collective::AllReduce, 8), Duration::ZERO));
        pages
    });
    for (explanation, _) in &explanations[0] {
        println!("{explanation}");
    }

    let [small, long, asked] = &explanations[0][..] else { unreachable!("three questions") };
    for (explanation, least) in [small, long] {
        let chosen = explanation.chosen().expect("every collective has an algorithm");
        println!(
            "{} bytes by {}: {} ns predicted, {} ns measured at best",
            explanation.bytes,
            chosen.plan.algorithm,
            chosen.predicted_ns,
            least.as_nanos()
        );
    }
    let asked = asked.0.chosen().expect("a ring can do that");
    let small = small.0.chosen().expect("every collective has an algorithm");
    println!(
        "8 bytes by ring would be {} ns: more hops than {}",
        asked.predicted_ns, small.plan.algorithm
    );
}
