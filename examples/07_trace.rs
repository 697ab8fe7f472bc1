//! Lesson 7: see the steps of a call, and the rank for which it waits.
//!
//! A trace has a lane for each rank. It shows the rank's calls, the folds inside them and the waits
//! between folds. Here a ring sums 4 MiB on four threads, twice. The second time rank 2 begins 5 ms
//! late, and the waits of the other ranks show it.
//!
//! A program under a launcher needs no change: `MAYPOLE_TRACE=trace.json maypole run -n 4 PROGRAM`.
//! The prediction is shown in the same form: `maypole simulate all-reduce -n 4 --timeline`.

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

    // The file is complete: a communicator writes the rest of its trace when it is dropped.
    let text = std::fs::read_to_string(&file)?;
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    println!(
        "{} calls, {} folds, {} waits",
        count("\"cat\":\"call\""),
        count("\"step\":"),
        count("\"cat\":\"wait\"")
    );
    println!("{} messages, each an arrow from its sender to its receiver", count("\"ph\":\"s\""));
    println!("\n{file}");
    println!(
        "open it at https://ui.perfetto.dev or chrome://tracing, and look for the gap at rank 2"
    );
    Ok(())
}
