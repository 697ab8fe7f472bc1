//! How far apart the cores of the ranks are, before and after a measurement.
//!
//! A virtual machine's cores may move between the caches of the real one at any moment. A message
//! takes several times as long between cores that share no cache, and then every figure of a run is
//! another one. So each round times a barrier at its two ends.

use std::fmt;

/// From this factor between the two ends of a run on, its points are not compared with one another.
const OTHER_MACHINE: f64 = 1.6;

/// Microseconds of a barrier before and after the points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreDistance {
    pub(crate) before: f64,
    pub(crate) after: f64,
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
