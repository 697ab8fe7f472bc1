//! What rows by speed gain where another program takes half of one rank's core.
//!
//! ```text
//! cargo bench -p maypole-lab --bench unequal [-- --rounds 9 --rows 32]
//! ```
//!
//! Two rank processes, each on a core of its own; a thread that computes without end shares the
//! core of rank 1. Both arms train the same model on the same rows with dp=2: with equal rows for
//! both ranks, and with rows divided anew every second step. Arms alternate, and what counts is the
//! median over rounds of (seconds of a step with equal rows / seconds of a step by speed).

mod common;

use clap::Parser;
use common::processes::{Arm, BenchRanks};
use common::{Options, core_of, median, range};
use rustix::thread::sched_setaffinity;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The least throughput of rows by speed, as a multiple of that of equal rows.
const BAR: f64 = 1.25;

/// Compare rows by speed with equal rows beside a busy core, round by round.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

/// A thread that keeps a core busy until it is dropped.
struct BusyCore {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyCore {
    /// Shares the core of rank `rank`.
    fn of_rank(rank: usize) -> anyhow::Result<Self> {
        let core = core_of(rank)?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let work = move || {
            if sched_setaffinity(None, &core).is_ok() {
                while !told.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        Ok(Self { ends, thread: Some(thread::spawn(work)) })
    }
}

impl Drop for BusyCore {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Args::parse().options;
    if !options.begin()? {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}; another program on the core of rank 1", options.describe());
    let mut processes = BenchRanks::start(|_, this| Command::new(this), "127.0.0.1")?;
    let _busy = BusyCore::of_rank(1)?;
    // The first steps allocate memory, connect, and measure the speed of ranks.
    let mut arms = [Arm::During, Arm::BySpeed];
    for arm in arms {
        processes.turn(arm, 8)?;
    }
    let mut ratios = Vec::new();
    println!("{:>5}  {:>14}  {:>14}  {:>6}", "round", "equal, s/step", "by speed", "ratio");
    for round in 0..options.rounds {
        let mut seconds = [0.0; 2];
        for arm in arms {
            seconds[usize::from(arm == Arm::BySpeed)] = processes.step(arm, options.steps)?;
        }
        arms.reverse();
        let [equal, by_speed] = seconds;
        println!("{:>5}  {equal:>14.4}  {by_speed:>14.4}  {:>6.3}", round + 1, equal / by_speed);
        ratios.push(equal / by_speed);
    }
    let ratio = median(ratios.iter().copied());
    println!("median: rows by speed train {} times as fast as equal rows", range(&ratios));
    let what = format!("rows by speed reach {ratio:.3} of equal rows, at least {BAR}");
    Ok(options.verdict(&what, ratio >= BAR))
}
