//! What the benches share: the model that they train, the processes that train it, and medians.
#![allow(dead_code, reason = "not every bench uses all of it")]

pub(crate) mod processes;
mod rank;

pub(crate) use maypole_lab::compare::median;
use maypole_trainer::model::config::Config;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::process::ExitCode;

/// What is trained, and how it is measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Numbers of a token's vector.
    #[arg(long, default_value_t = 256)]
    width: usize,
    /// Tokens of a row.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Blocks.
    #[arg(long, default_value_t = 8)]
    layers: usize,
    /// Rows of a rank in a step.
    #[arg(long, default_value_t = 16)]
    rows: usize,
    /// The most KiB of a bucket of gradients, but a unit of the model is one at least.
    #[arg(long, default_value_t = 1024)]
    bucket: usize,
    /// Rounds, in each of which every arm has its turn.
    #[arg(long, default_value_t = 15)]
    pub(crate) rounds: usize,
    /// Steps of a turn.
    #[arg(long, default_value_t = 2)]
    pub(crate) steps: usize,
    /// Leave it to the system on which cores ranks run, instead of giving each one of its own.
    #[arg(long)]
    unpinned: bool,
    /// Report whether a bar is met, and do not fail.
    #[arg(long)]
    pub(crate) no_bars: bool,
    /// This process is a rank.
    #[arg(long, hide = true)]
    rank: bool,
    /// What `cargo bench` passes, and `cargo test` does not.
    #[arg(long, hide = true)]
    bench: bool,
    /// What test runners pass.
    #[arg(long, hide = true)]
    test: bool,
}

impl Options {
    /// True if this process is to measure. A rank has been one by then.
    pub(crate) fn begin(&self) -> anyhow::Result<bool> {
        if self.rank {
            rank::serve(self)?;
            return Ok(false);
        }
        let measures = self.bench && !self.test;
        if !measures {
            eprintln!("SKIPPED: measured by cargo bench, not by tests");
        }
        Ok(measures)
    }

    pub(crate) fn config(&self) -> Config {
        let Self { width, context, layers, .. } = *self;
        Config { vocab: 256, context, width, heads: 4, layers, experts: 0, ..Config::default() }
    }

    /// Tokens of a rank in a step.
    pub(crate) fn tokens(&self) -> usize {
        self.rows * self.context
    }

    /// Says whether a bar is met, and how the process should end for it.
    pub(crate) fn verdict(&self, what: &str, met: bool) -> ExitCode {
        println!("{}: {what}", if met { "met" } else { "MISSED" });
        if met || self.no_bars { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// What is trained, in a line.
    pub(crate) fn describe(&self) -> String {
        let parameters = self.config().parameters();
        let mib = 4.0 * parameters as f64 / f64::from(1 << 20);
        let cores =
            if self.unpinned { "where the system puts them" } else { "each on a core of its own" };
        format!(
            "dp=2, width {}, {} blocks, {parameters} parameters ({mib:.1} MiB of gradients in buckets of {} KiB or a block), {} rows \
             of {} tokens a rank; ranks are processes, {cores}; {} rounds of {} steps",
            self.width, self.layers, self.bucket, self.rows, self.context, self.rounds, self.steps
        )
    }
}

/// The core of rank `rank`: ranks take those in turn that this process may use.
pub(crate) fn core_of(rank: usize) -> anyhow::Result<CpuSet> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut core = CpuSet::new();
    core.set(cores[rank % cores.len()]);
    Ok(core)
}

/// The least, the middle and the greatest.
pub(crate) fn range(numbers: &[f64]) -> String {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.3} ({least:.3} to {most:.3})", median(numbers.iter().copied()))
}
