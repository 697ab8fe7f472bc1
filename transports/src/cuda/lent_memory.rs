//! The end of memory that other processes reach.
//!
//! The driver's manual forbids to free memory that another process has open. So a rank that leaves a
//! group closes what it has opened, says so, and frees its own memory when all ranks have said so. It
//! does not wait for that: the memory goes to a list of the process, and those that make memory later
//! free what has become free.

use super::memory::DeviceMemory;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of ranks that have left, and what tells that nobody has it open any more.
static LEFT: Mutex<Vec<(Arc<DeviceMemory>, Arc<AtomicBool>)>> = Mutex::new(Vec::new());

/// Memory of a rank that others may have open. Dropping it leaves it allocated until the process
/// ends.
#[derive(Debug)]
pub struct LentMemory {
    memory: Option<Arc<DeviceMemory>>,
}

impl LentMemory {
    pub(super) fn new(memory: Arc<DeviceMemory>) -> Self {
        Self { memory: Some(memory) }
    }

    /// Frees the memory, which no other process has open. Threads of this process keep what they
    /// use.
    pub fn free(mut self) {
        drop(self.memory.take());
    }

    /// Frees the memory when `released` has become true, which says that no other process has it
    /// open: not now, but before memory for another group is made.
    pub fn free_after(mut self, released: Arc<AtomicBool>) {
        if let Some(memory) = self.memory.take() {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((memory, released));
        }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        std::mem::forget(self.memory.take());
    }
}

/// Frees what ranks of this process that have left lent to others, as far as nobody has it open any more.
/// Whoever makes memory for another group does so, too.
pub fn free_what_was_left() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let free = left.extract_if(.., |(_, released)| released.load(Ordering::Acquire));
    let free: Vec<_> = free.collect();
    drop(left);
    drop(free);
}
