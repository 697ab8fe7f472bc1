//! Programs in the memory of a GPU, and those that graphs keep.

use crate::algorithms::Algorithm;
use crate::world::calls::CallRecord;
use cudarc::driver::CudaFunction;
use maypole_transports::cuda::{DeviceCode, Room};
use std::sync::Arc;

/// A call that has a program on the GPU.
pub(super) struct Prepared {
    pub(super) code: DeviceCode,
    pub(super) room: Room,
    pub(super) kernel: CudaFunction,
    pub(super) record: Arc<CallRecord>,
    pub(super) stages_input: bool,
    /// Bytes of this rank's input.
    pub(super) input: usize,
    pub(super) divisor: Option<u64>,
    pub(super) fingerprint: u32,
    pub(super) algorithm: Algorithm,
}

/// Programs that a graph may run again: they are kept as long as the rank, and so is the working memory
/// of their calls. Each program is kept once, however often it is captured.
#[derive(Default)]
pub(super) struct Captured {
    calls: Vec<Arc<Prepared>>,
    messages: Vec<Arc<DeviceCode>>,
}

impl Captured {
    /// True if some call was captured.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn keep_call(&mut self, call: &Arc<Prepared>) {
        if !self.calls.iter().any(|kept| Arc::ptr_eq(kept, call)) {
            self.calls.push(Arc::clone(call));
        }
    }

    pub(super) fn keep_message(&mut self, code: &Arc<DeviceCode>) {
        if !self.messages.iter().any(|kept| Arc::ptr_eq(kept, code)) {
            self.messages.push(Arc::clone(code));
        }
    }
}
