//! How the points of a measurement are sampled.

use super::CHECKED_IN_A_ROW;
use crate::perf::parse::{milliseconds, positive, region};
use clap::ArgAction;
use clap::builder::BoolishValueParser;
use std::time::Duration;

// How many samples are taken of each point, and whether they are checked. The texts are those of the help.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct SamplingOptions {
    /// How many calls to time at each point [default: what fits in --budget].
    #[arg(short, long, value_name = "N", value_parser = positive)]
    pub(crate) iters: Option<usize>,

    /// How many calls to make before a point is timed. They are checked too.
    #[arg(short, long, alias = "warmup_iters", value_name = "N", default_value_t = 1)]
    pub(crate) warmup: usize,

    /// Milliseconds of sampling at each point.
    #[arg(long, value_name = "MS", default_value = "60", value_parser = milliseconds)]
    pub(crate) budget: Duration,

    /// Check results: true or 1, false or 0. `--check false` only measures.
    #[arg(
        short,
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_value = "true",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::Set
    )]
    pub(crate) check: bool,

    /// Write inputs before the first sample of a point, and not before each sample, and let all calls of
    /// the later samples have one output, as most other benchmarks do. Of the samples only the first one
    /// is checked.
    #[arg(long)]
    pub(crate) reuse_buffers: bool,

    /// Time each call by itself: all ranks begin it together, after a barrier, and it ends when the last one
    /// has its result. Without this a sample is a row of calls, in which some ranks run ahead of others.
    #[arg(long, conflicts_with = "overlap")]
    pub(crate) together: bool,

    /// Measure with buffers that lie in no cache: each call is timed by itself, as with --together, and
    /// before it SIZE other bytes are written on each rank [SIZE: twice the last cache].
    #[arg(
        long,
        alias = "off_cache",
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        value_parser = region,
        conflicts_with = "overlap"
    )]
    pub(crate) off_cache: Option<usize>,

    /// Leave out every N-th measured call on all ranks: shows that the check notices.
    #[arg(long, value_name = "N", hide = true, value_parser = positive)]
    pub(crate) sabotage: Option<usize>,

    /// This rank computes for 200 us before each measured call: shows that a slow rank is named.
    #[arg(long, value_name = "RANK", hide = true)]
    pub(crate) slow_rank: Option<usize>,

    // How many calls are checked one by one before the samples of each series.
    #[arg(skip = CHECKED_IN_A_ROW)]
    pub(crate) in_a_row: usize,
}
