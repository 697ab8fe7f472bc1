//! The state of the machine: how long a barrier between two ranks takes.

use std::fmt;

/// From this factor between the two ends of a round on, its times are of two machines.
const OTHER_MACHINE: f64 = 1.6;

/// Microseconds of a barrier between two ranks, before and after a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineState {
    pub(crate) before: f64,
    pub(crate) after: f64,
}

impl MachineState {
    pub(crate) fn is_steady(self) -> bool {
        self.before.max(self.after) <= self.before.min(self.after) * OTHER_MACHINE
    }
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a barrier took {:.3} us before and {:.3} us after", self.before, self.after)?;
        if self.is_steady() { Ok(()) } else { f.write_str(": the machine changed") }
    }
}
