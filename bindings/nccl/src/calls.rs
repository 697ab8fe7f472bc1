//! Collectives and messages: checks, placement of the buffers, and the start of a call.

use crate::abi::{
    ElementType, cudaStream_t, ncclCollConfig_t, ncclComm_t, ncclDataType_t, ncclRedOp_t,
};
use crate::communicator::{self, Communicator, Engine};
use crate::core::{self, Comm, Lent, RawCall, RawMessage, RawOp, StartableCall};
use crate::error::Failure;
use crate::group::{self, Queued, What};
use crate::operations::{self, Operation};
use crate::real::{RealCall, RealMessage};
use crate::trace::Line;
use cudarc::driver::CudaStream;
use maypole::schedule::collective::Collective;
use maypole::{DataType, Factor, ReduceOp};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Bytes in the memory of a GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Span {
    const NOTHING: Self = Self { address: 0, bytes: 0 };

    fn overlaps(self, other: Self) -> bool {
        self.address < other.address + other.bytes && other.address < self.address + self.bytes
    }

    /// # Safety
    /// The bytes must stay allocated, and belong to the call alone, until the call has completed.
    unsafe fn lent<'a>(self) -> Lent<'a> {
        // SAFETY: the caller guarantees it.
        unsafe { Lent::from_raw(self.address, self.bytes) }
    }
}

/// A validated collective.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    collective: Collective,
    kind: DataType,
    operation: Operation,
    buffers: Buffers,
}

/// A validated message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    address: u64,
    pub(crate) bytes: u64,
    kind: DataType,
}

/// The buffers of a collective on this rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Buffers {
    /// `None`: in place, and the output is the whole buffer.
    input: Option<Span>,
    output: Span,
}

/// How long the buffers of a collective are, and where a rank's own block begins in the longer one.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Bytes that the rank reads; 0 if it reads nothing.
    input: u64,
    /// Bytes that the rank writes; 0 if it writes nothing.
    output: u64,
    /// Offset in bytes of the receive buffer from the send buffer in an in-place call.
    in_place_at: i64,
}

/// The lengths of a rank's buffers in a call of `block` bytes a rank.
fn lengths(collective: Collective, rank: usize, world: usize, block: u64) -> Lengths {
    let whole = block * world as u64;
    let own = rank as i64 * block as i64;
    let is_root = collective.root() == Some(rank);
    let at_root = |bytes: u64| if is_root { bytes } else { 0 };
    let of = |input, output, in_place_at| Lengths { input, output, in_place_at };
    match collective {
        Collective::Broadcast { .. } => of(at_root(block), block, 0),
        Collective::Reduce { .. } => of(block, at_root(block), 0),
        Collective::AllGather => of(block, whole, -own),
        Collective::ReduceScatter => of(whole, block, own),
        Collective::Gather { .. } => of(block, at_root(whole), -own),
        Collective::Scatter { .. } => of(at_root(whole), block, own),
        Collective::AllToAll => of(whole, whole, 0),
        Collective::AllReduce
        | Collective::Scan
        | Collective::ExclusiveScan
        | Collective::Barrier => of(block, block, 0),
    }
}

/// Finds the placement of a call's buffers as NCCL defines it. A buffer that the rank does not use
/// may have any address.
fn place(lengths: Lengths, send: u64, receive: u64) -> Result<Buffers, Failure> {
    let Lengths { input, output, in_place_at } = lengths;
    if input > 0 && send == 0 {
        return Err(Failure::argument("the send buffer is NULL"));
    }
    if output > 0 && receive == 0 {
        return Err(Failure::argument("the receive buffer is NULL"));
    }
    let span = |address, bytes| match bytes {
        0 => Span::NOTHING,
        bytes => Span { address, bytes },
    };
    let (read, written) = (span(send, input), span(receive, output));
    for Span { address, bytes } in [read, written] {
        if address.checked_add(bytes).is_none() {
            return Err(Failure::argument("a buffer goes beyond the last address"));
        }
    }
    if input > 0 && output > 0 && is_in_place(send, receive, in_place_at) {
        let whole = if input > output { read } else { written };
        return Ok(Buffers { input: None, output: whole });
    }
    match read.overlaps(written) {
        false => Ok(Buffers { input: Some(read), output: written }),
        true => Err(Failure::argument(
            "the buffers overlap, and not as in a call in place: use others, or a call in place",
        )),
    }
}

fn is_in_place(send: u64, receive: u64, in_place_at: i64) -> bool {
    send.checked_add_signed(in_place_at) == Some(receive)
}

/// The class of a call's placement in the trace.
fn traced(send: u64, receive: u64, in_place_at: i64) -> &'static str {
    match (send, receive) {
        (0, 0) => "none",
        (_, 0) => "send-only",
        (0, _) => "receive-only",
        _ if is_in_place(send, receive, in_place_at) => "in-place",
        _ => "apart",
    }
}

/// The address of a pointer to GPU memory.
fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// The bytes of `count` elements. Fails on overflow, also of the bytes of all ranks.
fn block_bytes(count: usize, element: ElementType, world: usize) -> Result<u64, Failure> {
    let bytes = count.checked_mul(element.size());
    let whole = bytes.and_then(|bytes| bytes.checked_mul(world));
    match (bytes, whole.map(i64::try_from)) {
        (Some(bytes), Some(Ok(_))) => Ok(bytes as u64),
        _ => Err(Failure::argument(format!("{count} elements for {world} ranks are too many"))),
    }
}

struct Arguments {
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    kind: ncclDataType_t,
    op: Option<ncclRedOp_t>,
    root: Option<c_int>,
    comm: ncclComm_t,
    stream: cudaStream_t,
}

impl Arguments {
    /// The arguments of a call without operation and root.
    fn new(
        (send, receive): (*const c_void, *mut c_void),
        count: usize,
        kind: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Self {
        Self { send, receive, count, kind, op: None, root: None, comm, stream }
    }
}

/// Checks a collective, and starts it or puts it into the open group.
fn collective(
    line: &mut Line,
    which: impl FnOnce(usize) -> Collective,
    arguments: Arguments,
) -> Result<(), Failure> {
    group::noted((|| {
        let Arguments { send, receive, count, kind, op, root, comm, stream } = arguments;
        let (send, receive, stream) = (address(send), address(receive), stream.addr());
        line.count(count);
        line.stream(stream);
        if let Some(op) = op {
            line.op(operations::traced(op));
        }
        if let Some(root) = root {
            line.peer(root);
        }
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        let element = ElementType::of(kind)?;
        line.kind(element.name);
        let (rank, world) = (communicator.rank, communicator.world);
        let root = usize::try_from(root.unwrap_or(0)).ok().filter(|root| *root < world);
        let root = root
            .ok_or_else(|| Failure::argument(format!("there is no such root of {world} ranks")))?;
        let operation = match op {
            None if communicator.real().is_some() => Operation::Real(0),
            None => Operation::BuiltIn(ReduceOp::Sum),
            Some(op) => operations::operation(&communicator, op, element)?,
        };
        let collective = which(root);
        let block = block_bytes(count, element, world)?;
        let lengths = lengths(collective, rank, world, block);
        line.placement(traced(send, receive, lengths.in_place_at));
        let engine = communicator.engine()?;
        if let (Engine::Real(real), Operation::Real(op)) = (&engine, operation) {
            let real = *real;
            let size = element.size();
            let call = RealCall { collective, send, receive, count, kind, size, op, stream };
            let start = Box::new(move || real.call(&call, world, rank));
            return group::call(Queued { communicator, stream, what: What::Real(real, start) });
        }
        if count == 0 {
            return Ok(());
        }
        let buffers = place(lengths, send, receive)?;
        communicator.check_stream(stream)?;
        let prepared = Prepared { collective, kind: element.kind, operation, buffers };
        match world {
            1 => alone(&communicator, stream, &prepared),
            _ => group::call(Queued { communicator, stream, what: What::Collective(prepared) }),
        }
    })())
}

/// A call in a world of one rank: a copy, which is started immediately, also in a group. A factor needs
/// the kernel.
fn alone(communicator: &Communicator, stream: usize, call: &Prepared) -> Result<(), Failure> {
    let comm = communicator.comm()?;
    let multiplies = match call.operation {
        Operation::BuiltIn(ReduceOp::PreMulSum(factor)) => factor != Factor::ONE,
        Operation::BuiltIn(_) => false,
        Operation::FactorAt(_) | Operation::Real(_) => true,
    };
    let context = &communicator.context;
    core::preserving(|_| match (multiplies, call.buffers.input) {
        (false, None) => Ok(()),
        (false, Some(input)) => {
            let output = call.buffers.output;
            let bytes = input.bytes as usize;
            // SAFETY: the program passes buffers and a stream of the communicator's GPU, and keeps
            // them until the stream is done; they do not overlap.
            unsafe { core::copy(context, stream, output.address, input.address, bytes) }
        }
        (true, _) => {
            // SAFETY: as above.
            let stream = unsafe { core::borrowed_stream(context, stream) };
            start_collective(&comm, &stream, call)
        }
    })
}

/// Starts a collective on a stream.
fn start_collective(comm: &Comm, stream: &Arc<CudaStream>, call: &Prepared) -> Result<(), Failure> {
    Ok(comm.start_on(stream, &make_ready(comm, stream, call)?)?)
}

/// Prepares a collective, so that it can start on a stream.
pub(crate) fn make_ready<'a>(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    call: &Prepared,
) -> Result<StartableCall<'a>, Failure> {
    let Prepared { collective, kind, operation, buffers } = *call;
    // SAFETY: the program passes buffers of the communicator's GPU. It keeps them allocated, and does
    // not write to them, until the stream has completed the call. The same holds for the factor.
    let lent = |span: Span| unsafe { span.lent() };
    let op = match operation {
        Operation::BuiltIn(op) => RawOp::BuiltIn(op),
        Operation::FactorAt(address) => {
            RawOp::PreMulSumAt(lent(Span { address, bytes: kind.size() as u64 }))
        }
        Operation::Real(_) => {
            return Err(Failure::internal("an operation of NVIDIA's library came here"));
        }
    };
    let (input, output) = (buffers.input.map(lent), lent(buffers.output));
    Ok(comm.make_ready(stream, &RawCall { collective, kind, op, input, output })?)
}

/// Starts messages on a stream. None waits for another.
pub(crate) fn start_messages(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    messages: &[Message],
) -> Result<(), Failure> {
    let raw = |message: &Message| {
        let Message { peer, sends, address, bytes, kind } = *message;
        // SAFETY: the program passes buffers of the communicator's GPU, and keeps them until the
        // stream has done the message.
        let data = unsafe { Span { address, bytes }.lent() };
        RawMessage { peer, sends, data, kind }
    };
    let messages: Vec<_> = messages.iter().map(raw).collect();
    Ok(comm.exchange_on(stream, &messages)?)
}

/// Checks a message, and starts it or puts it into the open group.
fn message(
    line: &mut Line,
    sends: bool,
    (buffer, count, number): (*const c_void, usize, ncclDataType_t),
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> Result<(), Failure> {
    group::noted((|| {
        let (address, stream) = (address(buffer), stream.addr());
        line.count(count);
        line.stream(stream);
        line.peer(peer);
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        let element = ElementType::of(number)?;
        line.kind(element.name);
        let world = communicator.world;
        let peer = usize::try_from(peer).ok().filter(|peer| *peer < world).ok_or_else(|| {
            Failure::argument(format!("there is no rank {peer} of {world} to talk to"))
        })?;
        let bytes = block_bytes(count, element, 1)?;
        if bytes > 0 && address == 0 {
            return Err(Failure::argument("the buffer is NULL"));
        }
        if let Engine::Real(real) = communicator.engine()? {
            let (kind, peer) = (number, peer as c_int);
            let message = RealMessage { sends, address, count, kind, peer, stream };
            let start = Box::new(move || real.message(&message));
            return group::call(Queued { communicator, stream, what: What::Real(real, start) });
        }
        communicator.check_stream(stream)?;
        let address = if bytes == 0 { 0 } else { address };
        let message = Message { peer, sends, address, bytes, kind: element.kind };
        group::call(Queued { communicator, stream, what: What::Message(message) })
    })())
}

/// Makes a collective, and its variant with settings, which are ignored.
macro_rules! collectives {
    ($(
        $(#[$note:meta])*
        fn $name:ident, $profiled:ident, $config:ident, $profiled_config:ident(
            $($optional:ident: $kind:ty),*
        ) => $which:expr;
    )+) => { $(
        exported! {
            $(#[$note])*
            fn $name, $profiled(
                line;
                send: *const c_void,
                receive: *mut c_void,
                count: usize,
                kind: ncclDataType_t,
                $($optional: $kind,)*
                comm: ncclComm_t,
                stream: cudaStream_t,
            ) {
                let arguments = Arguments {
                    $($optional: Some($optional),)*
                    ..Arguments::new((send, receive), count, kind, comm, stream)
                };
                collective(line, $which, arguments)
            }

            $(#[$note])*
            /// The settings are ignored.
            fn $config, $profiled_config(
                line;
                send: *const c_void,
                receive: *mut c_void,
                count: usize,
                kind: ncclDataType_t,
                $($optional: $kind,)*
                comm: ncclComm_t,
                stream: cudaStream_t,
                _config: *const ncclCollConfig_t,
            ) {
                let arguments = Arguments {
                    $($optional: Some($optional),)*
                    ..Arguments::new((send, receive), count, kind, comm, stream)
                };
                collective(line, $which, arguments)
            }
        }
    )+ };
}

collectives! {
    /// Reduces the elements of all ranks into the receive buffer of every rank.
    fn ncclAllReduce, pncclAllReduce, ncclAllReduceConfig, pncclAllReduceConfig(
        op: ncclRedOp_t
    ) => |_| Collective::AllReduce;

    /// Reduces the elements of all ranks into the receive buffer of the root.
    fn ncclReduce, pncclReduce, ncclReduceConfig, pncclReduceConfig(
        op: ncclRedOp_t, root: c_int
    ) => |root| Collective::Reduce { root };

    /// Copies the root's elements to every rank.
    fn ncclBroadcast, pncclBroadcast, ncclBroadcastConfig, pncclBroadcastConfig(
        root: c_int
    ) => |root| Collective::Broadcast { root };

    /// Collects the elements of all ranks, in rank order, on every rank.
    fn ncclAllGather, pncclAllGather, ncclAllGatherConfig, pncclAllGatherConfig(
    ) => |_| Collective::AllGather;

    /// Reduces the elements of all ranks; each rank receives its block of the result.
    fn ncclReduceScatter, pncclReduceScatter, ncclReduceScatterConfig, pncclReduceScatterConfig(
        op: ncclRedOp_t
    ) => |_| Collective::ReduceScatter;

    /// Copies block `r` of rank `s` to block `s` of rank `r`.
    fn ncclAlltoAll, pncclAlltoAll, ncclAlltoAllConfig, pncclAlltoAllConfig(
    ) => |_| Collective::AllToAll;

    /// Collects the elements of all ranks, in rank order, on the root.
    fn ncclGather, pncclGather, ncclGatherConfig, pncclGatherConfig(
        root: c_int
    ) => |root| Collective::Gather { root };

    /// Copies block `r` of the root to rank `r`.
    fn ncclScatter, pncclScatter, ncclScatterConfig, pncclScatterConfig(
        root: c_int
    ) => |root| Collective::Scatter { root };
}

exported! {
    /// Copies the root's elements to every rank, in place.
    fn ncclBcast, pncclBcast(
        line;
        buffer: *mut c_void,
        count: usize,
        kind: ncclDataType_t,
        root: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        let buffers = (buffer.cast_const(), buffer);
        let arguments = Arguments {
            root: Some(root),
            ..Arguments::new(buffers, count, kind, comm, stream)
        };
        collective(line, |root| Collective::Broadcast { root }, arguments)
    }

    /// Sends elements to a rank, which receives as many. A message of a rank to itself needs a group
    /// that contains both the send and the receive.
    fn ncclSend, pncclSend(
        line;
        buffer: *const c_void,
        count: usize,
        kind: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        message(line, true, (buffer, count, kind), peer, comm, stream)
    }

    /// Receives elements from a rank, which sends as many.
    fn ncclRecv, pncclRecv(
        line;
        buffer: *mut c_void,
        count: usize,
        kind: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        message(line, false, (buffer.cast_const(), count, kind), peer, comm, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: u64 = 0x10_0000;

    fn placed(collective: Collective, rank: usize, send: u64, receive: u64) -> Option<Buffers> {
        place(lengths(collective, rank, 4, 64), send, receive).ok()
    }

    fn in_place(address: u64, bytes: u64) -> Option<Buffers> {
        Some(Buffers { input: None, output: Span { address, bytes } })
    }

    fn apart(send: (u64, u64), receive: (u64, u64)) -> Option<Buffers> {
        let span = |(address, bytes)| Span { address, bytes };
        Some(Buffers { input: Some(span(send)), output: span(receive) })
    }

    #[test]
    fn placements_are_those_of_nccl() {
        let at = 0x1000;
        assert_eq!(placed(Collective::AllReduce, 1, at, at), in_place(at, 64));
        assert_eq!(placed(Collective::AllReduce, 1, at, APART), apart((at, 64), (APART, 64)));
        // Rank 2's block of 64 bytes begins at 128.
        assert_eq!(placed(Collective::AllGather, 2, at + 128, at), in_place(at, 256));
        assert_eq!(placed(Collective::AllGather, 2, at, APART), apart((at, 64), (APART, 256)));
        assert_eq!(placed(Collective::ReduceScatter, 2, at, at + 128), in_place(at, 256));
        let root = 2;
        assert_eq!(placed(Collective::Gather { root }, 2, at + 128, at), in_place(at, 256));
        assert_eq!(placed(Collective::Scatter { root }, 2, at, at + 128), in_place(at, 256));
        assert_eq!(placed(Collective::AllToAll, 3, at, at), in_place(at, 256));
        assert_eq!(placed(Collective::Reduce { root }, 2, at, at), in_place(at, 64));
        assert_eq!(placed(Collective::Broadcast { root }, 2, at, at), in_place(at, 64));
    }

    #[test]
    fn buffers_that_a_rank_does_not_use_may_be_anything() {
        let (at, root) = (0x1000, 0);
        assert_eq!(placed(Collective::Broadcast { root }, 1, 0, at), apart((0, 0), (at, 64)));
        assert_eq!(placed(Collective::Broadcast { root }, 1, at, at), apart((0, 0), (at, 64)));
        assert_eq!(placed(Collective::Reduce { root }, 1, at, at), apart((at, 64), (0, 0)));
        assert_eq!(placed(Collective::Gather { root }, 1, at, 0), apart((at, 64), (0, 0)));
        assert_eq!(placed(Collective::Scatter { root }, 1, 0, at), apart((0, 0), (at, 64)));
    }

    #[test]
    fn other_overlaps_and_missing_buffers_are_refused() {
        let at = 0x1000;
        assert_eq!(placed(Collective::AllReduce, 0, at, at + 32), None);
        assert_eq!(placed(Collective::AllGather, 1, at, at), None, "of rank 0");
        assert_eq!(placed(Collective::AllGather, 0, at, at), in_place(at, 256));
        assert_eq!(placed(Collective::ReduceScatter, 1, at, at), None);
        assert_eq!(placed(Collective::AllReduce, 0, 0, at), None);
        assert_eq!(placed(Collective::AllReduce, 0, at, 0), None);
        assert_eq!(placed(Collective::AllReduce, 0, u64::MAX - 8, at), None);
        assert_eq!(placed(Collective::AllReduce, 0, at, at + 64), apart((at, 64), (at + 64, 64)));
    }

    #[test]
    fn lengths_that_no_memory_has_are_refused() {
        let f64_element = ElementType::of(8).unwrap();
        assert_eq!(block_bytes(3, f64_element, 2), Ok(24));
        for (count, world) in [(usize::MAX, 1), (usize::MAX / 16, 4), (1 << 60, 1)] {
            assert!(block_bytes(count, f64_element, world).is_err());
        }
    }

    #[test]
    fn the_trace_tells_how_buffers_lie() {
        assert_eq!(traced(8, 8, 0), "in-place");
        assert_eq!(traced(8, 80, 0), "apart");
        assert_eq!(traced(80, 8, -72), "in-place");
        assert_eq!((traced(8, 0, 0), traced(0, 8, 0)), ("send-only", "receive-only"));
    }
}
