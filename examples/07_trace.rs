//! Lesson 7: see what a call does and whom it waits for.
//!
//! A trace has a lane for every rank: its calls, the folds that they are made of, and the waits in
//! between. Here a ring sums 4 MB on four threads, twice; the second time one rank comes late, and
//! the others' waits show who it was.
//!
//! Programs that are started by a launcher need no change: `MAYPOLE_TRACE=trace.json maypole run -n
//! 4 PROGRAM`. What *should* happen looks the same: `maypole simulate all-reduce -n 4 --timeline`.

use maypole::algorithms::Algorithm;
use maypole::{Communicator, ReduceOp};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let file = std::env::temp_dir().join(format!("maypole-trace-{}.json", std::process::id()));
    let file = std::env::args().nth(1).unwrap_or_else(|| file.display().to_string());
    Communicator::run_local(4, |mut comm| {
        comm.trace(&file).expect("all ranks call it");
        comm.set_algorithm(Some(Algorithm::Ring));
        let mut gradients = vec![comm.rank() as f32; 1 << 20];
        comm.all_reduce(&mut gradients, ReduceOp::Sum).expect("all ranks call the same");
        if comm.rank() == 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        comm.all_reduce(&mut gradients, ReduceOp::Max).expect("all ranks call the same");
    });

    // What was recorded has been written by now: communicators write what is left when they are
    // dropped.
    let text = std::fs::read_to_string(&file)?;
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    println!(
        "{} calls, {} folds, {} waits",
        count("\"cat\":\"call\""),
        count("\"step\":"),
        count("\"cat\":\"wait\"")
    );
    println!("{} messages, each an arrow from who sends to who takes", count("\"ph\":\"s\""));
    println!("\n{file}");
    println!(
        "drop it on https://ui.perfetto.dev, or on chrome://tracing, and look for the gap at rank 2"
    );
    Ok(())
}
