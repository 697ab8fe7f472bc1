//! How far apart the cores of the ranks are, before and after a measurement.
//!
//! A virtual machine's cores may move between the caches of the real one at any moment. A message
//! takes several times as long between cores that share no cache, and then every figure of a run is
//! another one. So a run reports the time of a barrier at its two ends.

use maypole::{Communicator, Result};
use std::fmt;
use std::time::Instant;

/// Rows of barriers of which the fastest counts, and the barriers of a row. They are few, because
/// among other programs each may take a slice of the scheduler.
const ROWS: usize = 8;
const BARRIERS: u32 = 50;

/// From this factor between the two ends of a run on, its points are not compared with one another.
const OTHER_MACHINE: f64 = 1.6;

/// Microseconds of a barrier before and after the points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreDistance {
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// Measures microseconds of a barrier of all ranks. Collective.
pub(crate) fn barrier_us(comm: &mut Communicator) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..ROWS {
        let start = Instant::now();
        for _ in 0..BARRIERS {
            comm.barrier()?;
        }
        least = least.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(BARRIERS));
    }
    Ok(least)
}

impl CoreDistance {
    /// True if the times at the two ends are not of one machine.
    pub(crate) fn changed(self) -> bool {
        let (less, more) = (self.before.min(self.after), self.before.max(self.after));
        more > less * OTHER_MACHINE
    }
}

impl fmt::Display for CoreDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after } = self;
        write!(
            f,
            "# a barrier took {before:.3} us before the points and {after:.3} us after them"
        )?;
        if self.changed() {
            f.write_str(
                "\n# the cores came nearer or went apart meanwhile: do not compare points of this run",
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_cores_moved_says_so() {
        let said = |before, after| CoreDistance { before, after }.to_string();
        assert!(said(0.11, 0.34).contains("do not compare"));
        assert!(said(0.34, 0.11).contains("do not compare"));
        assert!(!said(0.11, 0.14).contains("do not compare"));
        assert!(said(0.11, 0.14).contains("0.110 us before the points and 0.140 us after them"));
    }
}
