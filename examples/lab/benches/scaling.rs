//! The throughput of two ranks together, compared with two that train alone at the same time.
//!
//! ```text
//! cargo bench -p maypole-lab --bench scaling [-- --rounds 9 --width 256]
//! ```
//!
//! Both arms are the same two processes on the same cores with as many rows a rank: what differs is
//! that in one arm they sum their gradients, over shared memory. Arms alternate, and what counts is
//! the median over rounds of (tokens a second together / tokens a second of both alone).

mod common;

use clap::Parser;
use common::processes::{Arm, BenchRanks};
use common::{Options, median, range};
use std::process::{Command, ExitCode};

/// The least share of what two ranks reach alone.
const BAR: f64 = 0.9;

/// Compare dp=2 with two independent ranks, round by round.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Args::parse().options;
    if !options.begin()? {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", options.describe());
    let mut processes = BenchRanks::start(|_, this| Command::new(this), "127.0.0.1")?;
    // The first steps make memory and connections.
    let mut arms = [Arm::Alone, Arm::During];
    for arm in arms {
        processes.turn(arm, 2)?;
    }
    let mut ratios = Vec::new();
    let mut speeds = [Vec::new(), Vec::new()];
    println!("{:>5}  {:>16}  {:>16}  {:>6}", "round", "alone, tokens/s", "dp=2, tokens/s", "ratio");
    for round in 0..options.rounds {
        let mut speed = [0.0; 2];
        for arm in arms {
            let turns = processes.turn(arm, options.steps)?;
            let tokens = (options.tokens() * options.steps) as f64;
            speed[usize::from(arm == Arm::During)] =
                turns.iter().map(|turn| tokens / turn.steps.iter().sum::<f64>()).sum();
        }
        arms.reverse();
        let ratio = speed[1] / speed[0];
        println!("{:>5}  {:>16.0}  {:>16.0}  {ratio:>6.3}", round + 1, speed[0], speed[1]);
        ratios.push(ratio);
        speeds.iter_mut().zip(speed).for_each(|(all, one)| all.push(one));
    }
    let [alone, together] = speeds.map(median);
    let ratio = median(ratios.iter().copied());
    println!(
        "median: {alone:.0} tokens/s alone, {together:.0} with dp=2; ratio {}",
        range(&ratios)
    );
    Ok(options.verdict(
        &format!("dp=2 reaches {ratio:.3} of two ranks alone, at least {BAR}"),
        ratio >= BAR,
    ))
}
