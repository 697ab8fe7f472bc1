//! Working memory of a GPU that grows with the calls.

use cudarc::driver::{CudaSlice, CudaStream};
use maypole_transports::cuda::{Lent, lend_mut};
use std::sync::Arc;

/// Memory of a GPU, as large as the most demanding call so far.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    memory: Option<CudaSlice<u8>>,
    /// What captured graphs still use.
    kept: Vec<CudaSlice<u8>>,
}

impl Workspace {
    /// Makes sure that there are `bytes` bytes. If it `keeps` memory, a captured graph may use what was
    /// there before, so that stays.
    pub(super) fn grow(
        &mut self,
        stream: &Arc<CudaStream>,
        bytes: usize,
        keeps: bool,
    ) -> Result<(), String> {
        if self.memory.as_ref().is_some_and(|memory| memory.len() >= bytes) || bytes == 0 {
            return Ok(());
        }
        let grown = stream.alloc_zeros::<u8>(bytes.next_power_of_two());
        let grown = grown.map_err(|error| format!("no memory for {bytes} bytes: {error:?}"))?;
        let before = self.memory.replace(grown);
        if keeps {
            self.kept.extend(before);
        }
        Ok(())
    }

    /// The memory, for work on `stream`, on which all of its users are.
    pub(super) fn lend<'a>(&'a mut self, stream: &'a CudaStream) -> Lent<'a> {
        self.memory.as_mut().map_or(Lent::EMPTY, |memory| lend_mut(memory, stream).0)
    }
}
