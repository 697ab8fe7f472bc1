//! Calls on bytes, whose element type is known at run time: the entry of bindings to other
//! languages.
//!
//! A call finds the typed method of the same name, so it is checked, chosen and run as that method
//! is.

use crate::comm::Communicator;
use crate::element::{DataType, Element, ReduceOp};
use crate::error::{Error, Result};
use crate::schedule::collective::Collective;
use bytemuck::{Pod, try_cast_slice, try_cast_slice_mut};
use maypole_kernels::with_type;

/// A collective call whose element type is known at run time. Lengths are in elements.
#[derive(Clone, Copy, Debug)]
pub struct ErasedCall<'a> {
    /// What is called, with its root.
    pub collective: Collective,
    /// The type of the elements.
    pub data_type: DataType,
    /// How elements are combined, by collectives that combine.
    pub op: ReduceOp,
    /// The lengths of the blocks, by rank, if they differ: as the typed methods whose names end in
    /// `_v`. In an all-to-all, the blocks that this rank sends.
    pub counts: Option<&'a [usize]>,
    /// In an all-to-all whose blocks differ in length: the blocks that this rank receives, by rank.
    pub receive_counts: Option<&'a [usize]>,
}

/// The buffers of a call, as bytes. Each begins at a multiple of the element's size.
#[derive(Debug)]
pub enum ErasedBuffers<'a> {
    /// One buffer for input and output, as the typed method in place takes it.
    InPlace(&'a mut [u8]),
    /// The input and the output.
    Apart(&'a [u8], &'a mut [u8]),
}

impl<'a> ErasedCall<'a> {
    /// A call of `collective` on elements of `data_type`, which sums and whose blocks are equally
    /// long.
    pub fn new(collective: Collective, data_type: DataType) -> Self {
        let op = ReduceOp::Sum;
        Self { collective, data_type, op, counts: None, receive_counts: None }
    }

    /// The same call, whose blocks have these lengths.
    #[must_use]
    pub fn with_counts(self, counts: &'a [usize]) -> Self {
        Self { counts: Some(counts), ..self }
    }
}

impl Communicator {
    /// Makes `call` on `buffers`.
    ///
    /// ```
    /// use maypole::schedule::collective::Collective;
    /// use maypole::{Communicator, DataType, ErasedBuffers, ErasedCall};
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut bytes = [1, 2, 3];
    ///     let call = ErasedCall::new(Collective::AllReduce, DataType::U8);
    ///     comm.call_erased(call, ErasedBuffers::InPlace(&mut bytes)).unwrap();
    ///     bytes
    /// });
    /// assert_eq!(sums, [[2, 4, 6]; 2]);
    /// ```
    ///
    /// # Errors
    /// As the typed method. [`Error::Invalid`] too if a buffer does not begin at a multiple of the
    /// element's size, if its length is no multiple of that, or if there is no such form of the
    /// collective: those with counts do not work in place.
    pub fn call_erased(&mut self, call: ErasedCall<'_>, buffers: ErasedBuffers<'_>) -> Result<()> {
        match (call.data_type, buffers) {
            (DataType::Bool, ErasedBuffers::InPlace(data)) => {
                let mut bools = to_bools(data);
                let done = in_place(self, call, &mut bools);
                from_bools(&bools, data);
                done
            }
            (DataType::Bool, ErasedBuffers::Apart(input, output)) => {
                let mut bools = to_bools(output);
                let done = apart(self, call, &to_bools(input), &mut bools);
                from_bools(&bools, output);
                done
            }
            (data_type, buffers) => with_type!(data_type, T => typed::<T>(self, call, buffers)),
        }
    }

    /// Sends `data`, elements of `data_type`, to rank `to`: as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`call_erased`](Self::call_erased).
    pub fn send_erased(
        &mut self,
        data_type: DataType,
        data: &[u8],
        to: usize,
        tag: u32,
    ) -> Result<()> {
        fn send<T: Element + Pod>(
            comm: &mut Communicator,
            data: &[u8],
            (to, tag): (usize, u32),
        ) -> Result<()> {
            let data = elements::<T>(comm, "send", data)?;
            comm.send(data, to, tag)
        }
        match data_type {
            DataType::Bool => self.send(&to_bools(data), to, tag),
            _ => with_type!(data_type, T => send::<T>(self, data, (to, tag))),
        }
    }

    /// Receives elements of `data_type` into `data`: from rank `from` as [`recv`](Self::recv), or
    /// from any rank as [`recv_any`](Self::recv_any). Returns the rank that the message came from,
    /// and how many elements it had.
    ///
    /// # Errors
    /// As [`recv`](Self::recv) and [`call_erased`](Self::call_erased).
    pub fn recv_erased(
        &mut self,
        data_type: DataType,
        data: &mut [u8],
        from: Option<usize>,
        tag: u32,
    ) -> Result<(usize, usize)> {
        fn recv<T: Element + Pod>(
            comm: &mut Communicator,
            data: &mut [u8],
            (from, tag): (Option<usize>, u32),
        ) -> Result<(usize, usize)> {
            let data = elements_mut::<T>(comm, "recv", data)?;
            receive(comm, data, from, tag)
        }
        match data_type {
            DataType::Bool => {
                let mut bools = to_bools(data);
                let received = receive(self, &mut bools, from, tag);
                from_bools(&bools, data);
                received
            }
            _ => with_type!(data_type, T => recv::<T>(self, data, (from, tag))),
        }
    }
}

fn receive<T: Element>(
    comm: &mut Communicator,
    data: &mut [T],
    from: Option<usize>,
    tag: u32,
) -> Result<(usize, usize)> {
    match from {
        Some(from) => comm.recv(data, from, tag).map(|()| (from, data.len())),
        None => comm.recv_any(data, tag),
    }
}

/// Zero is false, and every other byte is true.
fn to_bools(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().map(|byte| *byte != 0).collect()
}

fn from_bools(bools: &[bool], bytes: &mut [u8]) {
    bytes.iter_mut().zip(bools).for_each(|(byte, element)| *byte = u8::from(*element));
}

fn typed<T: Element + Pod>(
    comm: &mut Communicator,
    call: ErasedCall<'_>,
    buffers: ErasedBuffers<'_>,
) -> Result<()> {
    let name = call.collective.name();
    match buffers {
        ErasedBuffers::InPlace(data) => {
            let data = elements_mut::<T>(comm, name, data)?;
            in_place(comm, call, data)
        }
        ErasedBuffers::Apart(input, output) => {
            let input = elements::<T>(comm, name, input)?;
            let output = elements_mut::<T>(comm, name, output)?;
            apart(comm, call, input, output)
        }
    }
}

fn in_place<T: Element>(
    comm: &mut Communicator,
    call: ErasedCall<'_>,
    data: &mut [T],
) -> Result<()> {
    let name = call.collective.name();
    if call.counts.is_some() {
        let why = "blocks of different lengths need an output apart from the input";
        return Err(comm.invalid(name, why.to_owned()));
    }
    match call.collective {
        Collective::Broadcast { root } => comm.broadcast(data, root),
        Collective::Reduce { root } => comm.reduce(data, call.op, root),
        Collective::AllReduce => comm.all_reduce(data, call.op),
        Collective::Gather { root } => comm.gather_in_place(data, root),
        Collective::AllGather => comm.all_gather_in_place(data),
        Collective::Scatter { root } => comm.scatter_in_place(data, root),
        Collective::ReduceScatter => comm.reduce_scatter_in_place(data, call.op),
        Collective::AllToAll => comm.all_to_all_in_place(data),
        Collective::Scan => comm.scan(data, call.op),
        Collective::ExclusiveScan => comm.exclusive_scan(data, call.op),
        Collective::Barrier => comm.barrier(),
    }
}

fn apart<T: Element>(
    comm: &mut Communicator,
    call: ErasedCall<'_>,
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    if let Some(counts) = call.counts {
        return with_counts(comm, call, counts, input, output);
    }
    match call.collective {
        Collective::Broadcast { root } => broadcast_into(comm, input, output, root),
        Collective::Reduce { root } => comm.reduce_into(input, output, call.op, root),
        Collective::AllReduce => comm.all_reduce_into(input, output, call.op),
        Collective::Gather { root } => comm.gather(input, output, root),
        Collective::AllGather => comm.all_gather(input, output),
        Collective::Scatter { root } => comm.scatter(input, output, root),
        Collective::ReduceScatter => comm.reduce_scatter(input, output, call.op),
        Collective::AllToAll => comm.all_to_all(input, output),
        Collective::Scan => comm.scan_into(input, output, call.op),
        Collective::ExclusiveScan => comm.exclusive_scan_into(input, output, call.op),
        Collective::Barrier => comm.barrier(),
    }
}

/// The root's `output` becomes a copy of its `input`, and that is what all ranks get.
fn broadcast_into<T: Element>(
    comm: &mut Communicator,
    input: &[T],
    output: &mut [T],
    root: usize,
) -> Result<()> {
    if comm.rank() == root {
        comm.check_len("broadcast", "output", output.len(), input.len())?;
        output.copy_from_slice(input);
    }
    comm.broadcast(output, root)
}

fn with_counts<T: Element>(
    comm: &mut Communicator,
    call: ErasedCall<'_>,
    counts: &[usize],
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    match call.collective {
        Collective::Gather { root } => comm.gather_v(input, output, counts, root),
        Collective::AllGather => comm.all_gather_v(input, output, counts),
        Collective::Scatter { root } => comm.scatter_v(input, counts, output, root),
        Collective::ReduceScatter => comm.reduce_scatter_v(input, output, counts, call.op),
        Collective::AllToAll => {
            let receive_counts = call.receive_counts.unwrap_or(counts);
            comm.all_to_all_v(input, counts, output, receive_counts)
        }
        other => {
            let why = "its blocks cannot differ in length".to_owned();
            Err(comm.invalid(other.name(), why))
        }
    }
}

fn elements<'a, T: Pod>(
    comm: &Communicator,
    operation: &'static str,
    bytes: &'a [u8],
) -> Result<&'a [T]> {
    // No bytes are no elements, wherever they are said to begin.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    try_cast_slice(bytes).map_err(|error| unsuitable::<T>(comm, operation, bytes.len(), error))
}

fn elements_mut<'a, T: Pod>(
    comm: &Communicator,
    operation: &'static str,
    bytes: &'a mut [u8],
) -> Result<&'a mut [T]> {
    let len = bytes.len();
    if len == 0 {
        return Ok(&mut []);
    }
    try_cast_slice_mut(bytes).map_err(|error| unsuitable::<T>(comm, operation, len, error))
}

/// The error for bytes that are no elements.
#[cold]
fn unsuitable<T>(
    comm: &Communicator,
    operation: &'static str,
    len: usize,
    error: bytemuck::PodCastError,
) -> Error {
    let size = size_of::<T>();
    let why = match error {
        bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned => {
            format!(
                "a buffer does not begin at a multiple of {size} bytes: copy it to one that does"
            )
        }
        _ => format!("{len} bytes are no whole number of elements of {size} bytes"),
    };
    comm.invalid(operation, why)
}
