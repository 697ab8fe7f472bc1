//! Measures how much time it saves on a slow link to sum gradients during the backward pass, and how
//! much time that costs on a fast link.
//!
//! ```text
//! cargo bench -p maypole-lab --bench overlap [-- --rounds 9 --width 128 --bucket 256]
//! ```
//!
//! Two ranks in two network namespaces, with a wire between them that is made so narrow that sums
//! take 30 to 60 % of a step if they wait for the backward pass. A step is taken apart by three
//! arms that alternate: ranks that train alone at the same time (compute), sums after the backward
//! pass (compute and communication), sums during it. Then the same over shared memory, where there
//! is next to nothing to hide.

mod common;
#[path = "../../../tests/common/network.rs"]
mod network;

use anyhow::{Result, anyhow};
use clap::Parser;
use common::processes::{Arm, BenchRanks};
use common::{Options, median, range};
use network::{Network, address};
use std::ops::RangeInclusive;
use std::process::{Command, ExitCode};

/// The least share of the smaller part, compute or communication, that overlap saves.
const SAVES: f64 = 0.6;
/// The most that a step with overlap takes over shared memory, as a multiple of one without.
const COSTS: f64 = 1.05;
/// The share of communication in a step without overlap.
const SHARES: RangeInclusive<f64> = 0.3..=0.6;
/// The share that a rate is chosen for. Two thirds of compute, the backward pass, can hide
/// anything: so that it could hide all of communication but the last bucket, this is no more than
/// half as long as compute.
const AIM: f64 = 0.34;
/// How far from that the share may be for the rounds to count.
const NEAR: f64 = 0.06;
/// How often a rate is tried: in two rounds, then in all.
const TRIES: usize = 3;

/// Measure steps with and without overlap, over a narrow wire and over shared memory.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// The share of communication that a rate is chosen for.
    #[arg(long, default_value_t = AIM)]
    share: f64,
}

fn main() -> Result<ExitCode> {
    let Args { options, share } = Args::parse();
    if !options.begin()? {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", options.describe());
    let wire = match Network::new(2).and_then(|two| two.limit(1 << 30).map(|()| two)) {
        Ok(two) => over_a_wire(&two, &options, share)?,
        Err(why) => {
            println!("SKIPPED: no narrow wire between network namespaces here: {why}");
            ExitCode::SUCCESS
        }
    };
    let shared = over_shared_memory(&options)?;
    Ok(if wire == ExitCode::SUCCESS { shared } else { wire })
}

/// Seconds of a step.
#[derive(Clone, Copy)]
struct Round {
    compute: f64,
    after: f64,
    during: f64,
}

impl Round {
    fn communication(&self) -> f64 {
        self.after - self.compute
    }

    fn saved(&self) -> f64 {
        (self.after - self.during) / self.communication().min(self.compute)
    }
}

fn over_a_wire(network: &Network, options: &Options, aimed: f64) -> Result<ExitCode> {
    let mut processes = BenchRanks::start(|rank, this| network.command(rank, this), &address(0))?;
    let (rate, rounds) = calibrate(network, &mut processes, options, aimed)?;
    let of = |part: fn(&Round) -> f64| median(rounds.iter().map(part));
    let (compute, communication, share) = parts(&rounds);
    let after = of(|round| round.after);
    let during = of(|round| round.during);
    println!("over TCP through {:.0} Mbit/s each way, medians of the rounds:", rate / 1e6);
    println!("  compute                {:>8.1} ms", 1e3 * compute);
    println!(
        "  communication, exposed {:>8.1} ms, {:.0} % of the step",
        1e3 * communication,
        100.0 * share
    );
    println!("  step without overlap   {:>8.1} ms", 1e3 * after);
    println!("  step with overlap      {:>8.1} ms", 1e3 * during);
    println!("  saved                  {:>8.1} ms", 1e3 * (after - during));
    println!("  the smaller part       {:>8.1} ms", 1e3 * compute.min(communication));
    let saved: Vec<f64> = rounds.iter().map(Round::saved).collect();
    println!("  share of it saved      {}", range(&saved));
    let in_range = format!("communication is {share:.2} of a step without overlap, {SHARES:?}");
    let in_range = options.verdict(&in_range, SHARES.contains(&share));
    let saved = median(saved);
    let saves = format!("overlap saves {saved:.3} of the smaller part, at least {SAVES}");
    let saves = options.verdict(&saves, saved >= SAVES);
    Ok(if in_range == ExitCode::SUCCESS { saves } else { in_range })
}

/// Compute, communication, and the share of communication in a step without overlap: medians.
fn parts(rounds: &[Round]) -> (f64, f64, f64) {
    let of = |part: fn(&Round) -> f64| median(rounds.iter().map(part));
    (
        of(|round| round.compute),
        of(Round::communication),
        of(|round| round.communication() / round.after),
    )
}

/// Finds a rate, in bits a second, at which communication has its share of a step, and gives the
/// rounds measured at it; or those of the last rate that was tried.
fn calibrate(
    network: &Network,
    processes: &mut BenchRanks,
    options: &Options,
    aimed: f64,
) -> Result<(f64, Vec<Round>)> {
    // The first steps make memory and connections.
    for arm in [Arm::Alone, Arm::After, Arm::During] {
        processes.turn(arm, 1)?;
    }
    let aim = |compute: f64| compute * aimed / (1.0 - aimed);
    // Of an all-reduce on two ranks each sends as much as it has.
    let bits = 32.0 * options.config().parameters() as f64;
    let mut rate = bits / aim(processes.step(Arm::Alone, 3 * options.steps)?);
    let mut last = (rate, Vec::new());
    for rounds in [2, options.rounds].repeat(TRIES) {
        network.limit(rate as u64).map_err(|why| anyhow!(why))?;
        last = (rate, self::rounds(processes, options, rounds)?);
        let (compute, communication, share) = parts(&last.1);
        let compute_ms = 1e3 * compute;
        let communication_ms = 1e3 * communication;
        let mbits = rate / 1e6;
        println!(
            "{rounds} rounds at {mbits:.0} Mbit/s: {compute_ms:.1} ms of compute, {communication_ms:.1} ms of \
             communication, {:.0} % of a step",
            100.0 * share
        );
        let near = (share - aimed).abs() < NEAR;
        if rounds == options.rounds && near && SHARES.contains(&share) {
            break;
        }
        if !near {
            rate *= (communication / aim(compute)).clamp(0.25, 4.0);
        }
    }
    Ok(last)
}

/// All arms in turn, in an order that turns round by round.
fn rounds(processes: &mut BenchRanks, options: &Options, number: usize) -> Result<Vec<Round>> {
    let mut arms = [Arm::Alone, Arm::After, Arm::During];
    let mut rounds = Vec::new();
    for _ in 0..number {
        let mut round = Round { compute: 0.0, after: 0.0, during: 0.0 };
        for arm in arms {
            let step = processes.step(arm, options.steps)?;
            match arm {
                Arm::Alone => round.compute = step,
                Arm::After => round.after = step,
                Arm::During => round.during = step,
                Arm::BySpeed => unreachable!("`unequal.rs` measures rows by speed"),
            }
        }
        arms.rotate_left(1);
        rounds.push(round);
    }
    Ok(rounds)
}

fn over_shared_memory(options: &Options) -> Result<ExitCode> {
    let mut processes = BenchRanks::start(|_, this| Command::new(this), "127.0.0.1")?;
    for arm in [Arm::Alone, Arm::After, Arm::During] {
        processes.turn(arm, 2)?;
    }
    let rounds = rounds(&mut processes, options, options.rounds)?;
    let of = |part: fn(&Round) -> f64| 1e3 * median(rounds.iter().map(part));
    let compute = of(|round| round.compute);
    let after = of(|round| round.after);
    let during = of(|round| round.during);
    println!("over shared memory, medians of the rounds:");
    println!(
        "  compute {compute:.1} ms, step without overlap {after:.1} ms, with overlap {during:.1} ms"
    );
    let ratios: Vec<f64> = rounds.iter().map(|round| round.during / round.after).collect();
    println!("  with overlap / without {}", range(&ratios));
    let ratio = median(ratios);
    Ok(options.verdict(
        &format!("a step with overlap takes {ratio:.3} of one without, at most {COSTS}"),
        ratio <= COSTS,
    ))
}
