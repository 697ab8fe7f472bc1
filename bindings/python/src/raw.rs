//! Calls on addresses, as Python passes them.

use maypole::schedule::collective::Collective;
use maypole::{AnyElement, AnySlice, AnySliceMut, CallBuffers, DataType, IntoBuffers, ReduceOp};

/// Bytes at an address.
#[derive(Clone, Copy)]
pub(crate) struct RawBytes {
    start: usize,
    len: usize,
}

// SAFETY: an address and a length.
unsafe impl Send for RawBytes {}

impl RawBytes {
    pub(crate) fn new((start, len): (usize, usize)) -> Self {
        Self { start, len }
    }

    /// # Safety
    /// The bytes must be readable, and nobody may write them, until the slice is dropped.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        let start = std::ptr::with_exposed_provenance(self.start);
        match self.len {
            0 => &[],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts(start, len) },
        }
    }

    /// # Safety
    /// The bytes must be writable, and nobody else may use them, until the slice is dropped.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        match self.len {
            0 => &mut [],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts_mut(start, len) },
        }
    }
}

/// The buffers of a call: in place if there is no `input`. The counts are those of the blocks that
/// are sent, and that are received.
pub(crate) fn buffers<'a>(
    kind: DataType,
    input: Option<&'a [u8]>,
    output: &'a mut [u8],
    [sent, received]: [Option<&'a [usize]>; 2],
) -> CallBuffers<'a, AnyElement> {
    let output = AnySliceMut::new(kind, output);
    let buffers = match input {
        Some(input) => (AnySlice::new(kind, input), output).into_buffers(),
        None => output.into_buffers(),
    };
    buffers.with_counts(sent, received)
}

/// A call as the Python code passes it.
pub(crate) struct RawCall {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) input: RawBytes,
    pub(crate) output: RawBytes,
    pub(crate) counts: Option<Vec<usize>>,
    pub(crate) receive_counts: Option<Vec<usize>>,
}

impl RawCall {
    /// Makes the call. Equal buffers are one buffer in place.
    ///
    /// # Safety
    /// As [`RawBytes::bytes`] for the input and [`RawBytes::bytes_mut`] for the output.
    pub(crate) unsafe fn run(&self, comm: &mut maypole::Communicator) -> maypole::Result<()> {
        let in_place = self.input.start == self.output.start && self.input.len == self.output.len;
        let in_place = in_place && self.counts.is_none();
        // SAFETY: the caller's promise; buffers that are not equal do not overlap.
        let (input, output) =
            unsafe { ((!in_place).then(|| self.input.bytes()), self.output.bytes_mut()) };
        let counts = [&self.counts, &self.receive_counts].map(Option::as_deref);
        comm.call(self.collective, buffers(self.data_type, input, output, counts), self.op)
    }
}
