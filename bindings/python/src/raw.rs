//! Calls on addresses, as Python passes them.

use crate::busy::MemoryUse;
use maypole::schedule::collective::Collective;
use maypole::{AnySlice, AnySliceMut, BufferPlacement, DataType, Error, IntoBuffers, ReduceOp};
use std::ops::Range;

/// Bytes at an address.
#[derive(Clone, Copy)]
pub(crate) struct RawBytes {
    start: usize,
    len: usize,
}

// SAFETY: an address and a length.
unsafe impl Send for RawBytes {}

impl RawBytes {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0 };

    pub(crate) fn new((start, len): (usize, usize)) -> Self {
        Self { start, len }
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }

    /// # Safety
    /// The bytes must be readable, and must not be written, until the slice is dropped.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        let start = std::ptr::with_exposed_provenance(self.start);
        match self.len {
            0 => &[],
            // SAFETY: guaranteed by the caller.
            len => unsafe { std::slice::from_raw_parts(start, len) },
        }
    }

    /// # Safety
    /// The bytes must be writable, and not be used otherwise, until the slice is dropped.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        match self.len {
            0 => &mut [],
            // SAFETY: guaranteed by the caller.
            len => unsafe { std::slice::from_raw_parts_mut(start, len) },
        }
    }
}

/// A call on addresses.
pub(crate) struct RawCall {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    /// The type of the program, where it moves these elements for others.
    pub(crate) stands_for: Option<&'static str>,
    pub(crate) op: ReduceOp,
    /// `None`: the output is the input, too.
    pub(crate) input: Option<RawBytes>,
    pub(crate) output: RawBytes,
    /// The lengths of the blocks that are sent, and that are received.
    pub(crate) counts: Option<Vec<usize>>,
    pub(crate) receive_counts: Option<Vec<usize>>,
}

impl RawCall {
    /// Makes the call, in place where [`BufferPlacement`] finds that. If the buffers overlap in
    /// another way, it reads a copy of the input.
    ///
    /// # Safety
    /// As [`RawBytes::bytes`] for the input and [`RawBytes::bytes_mut`] for the output.
    pub(crate) unsafe fn run(&self, comm: &mut maypole::Communicator) -> maypole::Result<()> {
        let counts = [&self.counts, &self.receive_counts].map(Option::as_deref);
        let placement = self.placement(comm);
        let copy;
        // SAFETY: guaranteed by the caller, and no two of the slices have bytes in common.
        let (input, output) = unsafe {
            match (placement, self.input) {
                (BufferPlacement::InInput, Some(whole)) => (None, whole.bytes_mut()),
                (BufferPlacement::Overlapping, Some(input)) => {
                    copy = AlignedBytes::copy_of(input.bytes());
                    (Some(copy.bytes()), self.output.bytes_mut())
                }
                (BufferPlacement::Apart, Some(input)) => {
                    (Some(input.bytes()), self.output.bytes_mut())
                }
                _ => (None, self.output.bytes_mut()),
            }
        };
        let output = AnySliceMut::new(self.data_type, output);
        let buffers = match input {
            Some(input) => (AnySlice::new(self.data_type, input), output).into_buffers(),
            None => output.into_buffers(),
        };
        let buffers = buffers.with_counts(counts[0], counts[1]);
        let buffers = match self.stands_for {
            Some(name) => buffers.standing_for(name),
            None => buffers,
        };
        let done = comm.call(self.collective, buffers, self.op);
        done.map_err(|error| match (placement, error) {
            (BufferPlacement::Overlapping, Error::Invalid { rank, operation, why }) => {
                let why = format!("{why}; the two overlap, and not as in a call in place");
                Error::Invalid { rank, operation, why }
            }
            (_, error) => error,
        })
    }

    /// The memory that the call reads and writes on rank `rank`.
    pub(crate) fn uses(&self, rank: usize) -> [MemoryUse; 2] {
        let of = |bytes: RawBytes, is_written| MemoryUse { bytes: bytes.addresses(), is_written };
        // The root of a broadcast has the result already.
        let is_written = self.collective != Collective::Broadcast { root: rank };
        [of(self.input.unwrap_or(self.output), false), of(self.output, is_written)]
    }

    fn placement(&self, comm: &maypole::Communicator) -> BufferPlacement {
        let Some(input) = self.input else { return BufferPlacement::InOutput };
        let (here, is_even) = ((comm.rank(), comm.world()), self.has_even_blocks());
        let (input, output) = (input.addresses(), self.output.addresses());
        BufferPlacement::of(self.collective, here, input, output, is_even)
    }

    fn has_even_blocks(&self) -> bool {
        self.counts.is_none() && self.receive_counts.is_none()
    }
}

/// Bytes that begin where elements of any type may begin.
pub(crate) struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    /// `None` if there is not as much memory.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let mut words = Vec::new();
        words.try_reserve_exact(len.div_ceil(8)).ok()?;
        words.resize(len.div_ceil(8), 0);
        Some(Self { words, len })
    }

    fn copy_of(bytes: &[u8]) -> Self {
        let mut this = Self::zeroed(bytes.len()).expect("memory for a copy of the input");
        let start = this.words.as_mut_ptr().cast::<u8>();
        // SAFETY: the words have at least as many bytes, and are not used otherwise.
        unsafe { std::slice::from_raw_parts_mut(start, bytes.len()) }.copy_from_slice(bytes);
        this
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words have at least `len` bytes, all of them initialized.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    /// The first of the bytes, which may be written as long as `self` is kept and not used otherwise.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    /// The bytes, to be written as long as `self` is kept and not used otherwise.
    pub(crate) fn raw(&mut self) -> RawBytes {
        RawBytes::new((self.start().expose_provenance(), self.len))
    }
}
