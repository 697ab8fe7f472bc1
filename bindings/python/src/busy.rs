//! Memory that messages in flight use. A call or another message that would write it, or read memory that
//! a message writes, is refused: its result would depend on timing.

use crate::shared::lock;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The addresses of bytes that are read, or written.
#[derive(Clone)]
pub(crate) struct MemoryUse {
    pub(crate) bytes: Range<usize>,
    pub(crate) is_written: bool,
}

impl MemoryUse {
    /// True if the two have bytes in common, and one of them writes.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.bytes, &other.bytes);
        let overlap = mine.start.max(theirs.start) < mine.end.min(theirs.end);
        overlap && (self.is_written || other.is_written)
    }
}

/// The uses of memory by the messages of one communicator, each with its number.
#[derive(Clone, Default)]
pub(crate) struct BusyMemory(Arc<Mutex<BusyUses>>);

#[derive(Default)]
struct BusyUses {
    uses: Vec<(u64, MemoryUse)>,
    next: u64,
}

impl BusyMemory {
    /// True if a message in flight prevents one of `uses`.
    pub(crate) fn prevents(&self, uses: &[MemoryUse]) -> bool {
        let busy = lock(&self.0);
        busy.uses.iter().any(|(_, it)| uses.iter().any(|new| new.conflicts_with(it)))
    }

    /// Notes a use until the claim is dropped.
    pub(crate) fn claim(&self, new: MemoryUse) -> BusyClaim {
        let mut busy = lock(&self.0);
        let number = busy.next;
        busy.next += 1;
        busy.uses.push((number, new));
        BusyClaim { memory: self.clone(), number }
    }
}

/// A use of memory that has not ended.
pub(crate) struct BusyClaim {
    memory: BusyMemory,
    number: u64,
}

impl Drop for BusyClaim {
    fn drop(&mut self) {
        lock(&self.memory.0).uses.retain(|(number, _)| *number != self.number);
    }
}
