//! Memory of a rank that others may have open.

use super::memory::DeviceMemory;
use std::sync::Arc;

/// Memory of a rank that others may have open. Dropping it leaves it allocated until the process
/// ends: the driver's manual forbids to free memory that another process has open.
#[derive(Debug, Default)]
pub(super) struct LentMemory {
    /// `None` if it is taken, or in memory of the host, which needs no care.
    memory: Option<Arc<DeviceMemory>>,
}

impl LentMemory {
    pub(super) fn new(memory: Arc<DeviceMemory>) -> Self {
        Self { memory: Some(memory) }
    }

    /// Takes the memory, to give it back when no other process has it open.
    pub(super) fn take(&mut self) -> Option<Arc<DeviceMemory>> {
        self.memory.take()
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        std::mem::forget(self.memory.take());
    }
}
