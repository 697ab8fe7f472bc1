//! The part of a request that computing hides.
//!
//! Three things are timed: a request with an immediate wait (`call`), computing that takes as long
//! as that (`compute`), and a request with computing between its start and the wait (`both`). What
//! the two of them would take one after the other, less what both take together, was hidden:
//!
//! ```text
//! overlap = (call + compute - both) / min(call, compute), from 0 to 100 %
//! ```
//!
//! Computing is a fixed number of steps, and not a time: where another thread of the rank takes its
//! core, the same work takes longer, and the overlap is less.
//!
//! Source: "Intel MPI Benchmarks User Guide", IMB-NBC. Where call and compute take equally long, this
//! is also the definition of the OSU micro-benchmarks.

use crate::perf::measure::Measurement;
use maypole_transports::clock::monotonic_ns;
use serde::Serialize;
use std::hint::black_box;

/// The definition, below the table.
pub(crate) const DEFINITION: &str = "# call     a request that is started and waited for at once\n\
     # compute  computing that takes as long\n\
     # both     a request with that computing between its start and the wait\n\
     # overlap  (call + compute - both) / min(call, compute), 0 to 100 %, as IMB-NBC defines it";

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Beside {
    /// Whether a request is started and waited for.
    pub(crate) calls: bool,
    /// Steps of computing before the wait.
    pub(crate) turns: u64,
}

/// The medians of a point in microseconds, and the hidden part, from 0 to 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Overlap {
    part: f64,
    call_us: f64,
    compute_us: f64,
    both_us: f64,
}

impl Overlap {
    pub(crate) fn of(call: &Measurement, compute: &Measurement, both: &Measurement) -> Self {
        let [call_us, compute_us, both_us] = [call, compute, both].map(|it| it.time.p50);
        Self { part: hidden(call_us, compute_us, both_us), call_us, compute_us, both_us }
    }
}

fn hidden(call: f64, compute: f64, both: f64) -> f64 {
    let shorter = call.min(compute);
    if shorter > 0.0 { ((call + compute - both) / shorter).clamp(0.0, 1.0) } else { 0.0 }
}

/// Computes `turns` steps that depend on one another.
#[inline(never)]
pub(crate) fn compute(turns: u64) {
    let mut value = black_box(1.0_f64);
    for _ in 0..turns {
        value = value * 0.999_999 + 1e-6;
    }
    black_box(value);
}

/// The steps that take this rank `us` microseconds. The fastest of several trials counts, because a
/// trial may be preempted.
pub(crate) fn turns_of(us: f64) -> u64 {
    const TRIAL: u64 = 20_000;
    let trial = |_| {
        let start = monotonic_ns();
        compute(TRIAL);
        monotonic_ns() - start
    };
    let ns = (0..10).map(trial).min().unwrap_or(1).max(1) as f64 / TRIAL as f64;
    (us * 1e3 / ns) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hidden_part_is_that_of_the_shorter_one() {
        assert_eq!(hidden(10.0, 10.0, 20.0), 0.0, "one after the other");
        assert_eq!(hidden(10.0, 10.0, 10.0), 1.0, "all hidden");
        assert_eq!(hidden(10.0, 10.0, 15.0), 0.5);
        assert_eq!(hidden(10.0, 5.0, 12.5), 0.5);
        assert_eq!(hidden(10.0, 10.0, 30.0), 0.0, "slower than one after the other");
        assert_eq!(hidden(0.0, 0.0, 0.0), 0.0);
    }

    #[test]
    fn computing_takes_about_as_long_as_asked() {
        let took = |us: f64| {
            let turns = turns_of(us);
            let trial = |_| {
                let start = monotonic_ns();
                compute(turns);
                (monotonic_ns() - start) as f64 / 1e3
            };
            (0..10).map(trial).fold(f64::INFINITY, f64::min)
        };
        let us = took(500.0);
        assert!((250.0..1000.0).contains(&us), "{us}");
        assert_eq!(turns_of(0.0), 0);
    }
}
