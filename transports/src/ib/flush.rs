//! Reads that make earlier writes of an adapter arrive in the memory of a device.
//!
//! An adapter completes a write when it has sent the bytes to the PCI bus. Memory of the host is coherent with
//! that completion, but some GPUs may still have the bytes under way. A read does not overtake writes on the bus, so
//! once it is complete, the bytes have arrived. It goes through a queue pair that is connected to itself, as NCCL's
//! does (`ncclIbIflush`). NVIDIA describes the problem in "GPUDirect RDMA", and in `cuda.h` at
//! `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`.

use super::abi::{IbvWc, READ, WC_SUCCESS};
use super::adapter::{VerbsAdapter, VerbsMemory};
use super::error::{VerbsError, VerbsFault};
use super::queue_pair::{BATCH, QueuePair, RemoteWrite};
use std::io;
use std::sync::Arc;

/// Bytes of the memory that reads go to: a page.
const BYTES: usize = 4096;

/// A queue pair that reads from memory of this process's device.
pub(super) struct FlushPair {
    pair: QueuePair,
    // After the pair, which uses it.
    into: VerbsMemory,
    is_under_way: bool,
}

impl FlushPair {
    pub(super) fn new(adapter: &Arc<VerbsAdapter>) -> Result<Self, VerbsError> {
        let into = VerbsMemory::new(adapter, BYTES)?;
        let mut pair = QueuePair::new(adapter, 1, 1, 0)?;
        let own = pair.address();
        pair.connect(&own)?;
        Ok(Self { pair, into, is_under_way: false })
    }

    /// Begins a read of byte `at` of `from`, unless one is under way. True once it is complete.
    pub(super) fn read(&mut self, from: &VerbsMemory, at: usize) -> Result<bool, VerbsFault> {
        let failed = |error: io::Error| VerbsFault::Call(error.raw_os_error().unwrap_or(libc::EIO));
        if !self.is_under_way {
            let read = RemoteWrite {
                id: 0,
                from: self.into.kind.address(),
                len: 1,
                may_inline: false,
                local_key: self.into.local_key(),
                to: from.kind.address() + at as u64,
                remote_key: from.remote_key(),
                immediate: None,
            };
            // SAFETY: the byte is registered, and nothing else uses it.
            unsafe { self.pair.post(&read, READ) }.map_err(failed)?;
            self.is_under_way = true;
        }
        let mut completions = [IbvWc::default(); BATCH];
        match self.pair.completions.poll(&mut completions).map_err(failed)? {
            0 => Ok(false),
            _ if completions[0].status == WC_SUCCESS => {
                self.is_under_way = false;
                Ok(true)
            }
            _ => Err(VerbsFault::Status(completions[0].status)),
        }
    }
}
