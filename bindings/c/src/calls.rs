//! Collectives and messages.

use crate::buffers::{RawBuffer, block_of, either};
use crate::communicator::{borrow, maypole_comm, maypole_comm_t, put};
use crate::error::{Failure, guarded, maypole_result_t};
use crate::types::{MAYPOLE_SUM, data_type, maypole_data_type_t, maypole_op_t, operation};
use maypole::schedule::collective::Collective;
use maypole::{DataType, ErasedBuffers, ErasedCall};
use std::ffi::c_void;

/// What every collective is given.
struct Arguments<'a> {
    comm: &'a maypole_comm,
    data_type: DataType,
    op: maypole_op_t,
    send: *const c_void,
    recv: *mut c_void,
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// As [`borrow`].
    unsafe fn new(
        comm: maypole_comm_t,
        data_type_number: maypole_data_type_t,
        op: maypole_op_t,
        (send, recv): (*const c_void, *mut c_void),
    ) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let comm = unsafe { borrow(comm) }?;
        Ok(Self { comm, data_type: data_type(data_type_number)?, op, send, recv })
    }

    fn size(&self) -> usize {
        self.data_type.size()
    }

    /// `count` elements for each rank.
    fn whole(&self, count: usize) -> Result<usize, Failure> {
        let whole = count.checked_mul(self.comm.world());
        whole.ok_or_else(|| Failure::invalid(format!("{count} elements a rank are too many")))
    }

    fn sent(&self, count: usize) -> Result<RawBuffer, Failure> {
        RawBuffer::new(self.send, count, self.size())
    }

    fn received(&self, count: usize) -> Result<RawBuffer, Failure> {
        RawBuffer::new(self.recv, count, self.size())
    }

    /// Bytes before this rank's block, of `count` elements.
    fn offset(&self, count: usize) -> usize {
        self.comm.rank() * count * self.size()
    }

    fn call(&self, collective: Collective, buffers: ErasedBuffers<'_>) -> Result<(), Failure> {
        self.call_with(collective, None, None, buffers)
    }

    fn call_with(
        &self,
        collective: Collective,
        counts: Option<&[usize]>,
        receive_counts: Option<&[usize]>,
        buffers: ErasedBuffers<'_>,
    ) -> Result<(), Failure> {
        let op = operation(self.op)?;
        let call = ErasedCall { collective, data_type: self.data_type, op, counts, receive_counts };
        Ok(self.comm.lock()?.call_erased(call, buffers)?)
    }
}

/// # Safety
/// `counts` must be NULL or one number for each of `world` ranks.
unsafe fn counts_of<'a>(counts: *const usize, world: usize) -> Result<&'a [usize], Failure> {
    if counts.is_null() {
        return Err(Failure::invalid("the counts are NULL"));
    }
    // SAFETY: not null, and as long as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(counts, world) })
}

fn total(counts: &[usize]) -> Result<usize, Failure> {
    let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    total.ok_or_else(|| Failure::invalid("the counts are too many elements together"))
}

/// Waits until all ranks have called this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_barrier(comm: maypole_comm_t) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        Ok(comm.lock()?.barrier()?)
    })
}

/// Copies the root's `send` (count elements) to every rank's `recv` (count). `send` of other ranks
/// is not used. In place if `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_broadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    root: usize,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let output = it.received(count)?;
            let buffers = match it.comm.rank() == root {
                true => either(it.sent(count)?, output)?,
                false => ErasedBuffers::InPlace(output.bytes_mut()),
            };
            it.call(Collective::Broadcast { root }, buffers)
        }
    })
}

/// Combines the `send` (count elements) of all ranks into the root's `recv` (count). `recv` of other
/// ranks is not used and may be NULL. In place on the root if `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    root: usize,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let at_root = it.comm.rank() == root;
            let output = if at_root { it.received(count)? } else { RawBuffer::EMPTY };
            let buffers = either(it.sent(count)?, output)?;
            it.call(Collective::Reduce { root }, buffers)
        }
    })
}

/// Combines the `send` (count elements) of all ranks into every rank's `recv` (count). In place if
/// `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_all_reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let buffers = either(it.sent(count)?, it.received(count)?)?;
            it.call(Collective::AllReduce, buffers)
        }
    })
}

/// Collects the `send` (count elements) of all ranks, in rank order, in every rank's `recv` (world *
/// count). In place if `send` is this rank's block of `recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_all_gather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let (input, output) = (it.sent(count)?, it.received(it.whole(count)?)?);
            let buffers = block_of((output, input, it.offset(count)), (input, output))?;
            it.call(Collective::AllGather, buffers)
        }
    })
}

/// Combines the `send` (world * count elements) of all ranks; block r of the result goes to rank r's
/// `recv` (count). In place if `recv` is this rank's block of `send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_reduce_scatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let (input, output) = (it.sent(it.whole(count)?)?, it.received(count)?);
            let buffers = block_of((input, output, it.offset(count)), (input, output))?;
            it.call(Collective::ReduceScatter, buffers)
        }
    })
}

/// Block r of this rank's `send` (world * count elements) goes to rank r; block s of `recv` (world *
/// count) comes from rank s. In place if `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_all_to_all(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let whole = it.whole(count)?;
            let buffers = either(it.sent(whole)?, it.received(whole)?)?;
            it.call(Collective::AllToAll, buffers)
        }
    })
}

/// Collects the `send` (count elements) of all ranks, in rank order, in the root's `recv` (world *
/// count). `recv` of other ranks is not used and may be NULL. In place on the root if its `send` is
/// its block of `recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_gather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    root: usize,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let at_root = it.comm.rank() == root;
            let room = if at_root { it.whole(count)? } else { 0 };
            let (input, output) = (it.sent(count)?, it.received(room)?);
            let buffers = block_of((output, input, it.offset(count)), (input, output))?;
            it.call(Collective::Gather { root }, buffers)
        }
    })
}

/// Copies block r of the root's `send` (world * count elements) to rank r's `recv` (count). `send`
/// of other ranks is not used and may be NULL. In place on the root if its `recv` is its block of
/// `send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_scatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    root: usize,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let at_root = it.comm.rank() == root;
            let whole = if at_root { it.whole(count)? } else { 0 };
            let (input, output) = (it.sent(whole)?, it.received(count)?);
            let buffers = block_of((input, output, it.offset(count)), (input, output))?;
            it.call(Collective::Scatter { root }, buffers)
        }
    })
}

/// Combines the `send` (count elements) of ranks 0 to r into rank r's `recv` (count). In place if
/// `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_scan(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let buffers = either(it.sent(count)?, it.received(count)?)?;
            it.call(Collective::Scan, buffers)
        }
    })
}

/// Combines the `send` (count elements) of ranks 0 to r - 1 into rank r's `recv` (count). Rank 0's
/// `recv` does not change. In place if `send == recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_exclusive_scan(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and buffers of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let buffers = either(it.sent(count)?, it.received(count)?)?;
            it.call(Collective::ExclusiveScan, buffers)
        }
    })
}

/// As maypole_all_gather(), but rank r sends `counts[r]` elements: `recv` has room for all of them.
/// All ranks pass the same `counts`, one a rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_all_gather_v(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: maypole_data_type_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, counts and buffers of those lengths.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let counts = counts_of(counts, it.comm.world())?;
            let input = it.sent(counts[it.comm.rank()])?;
            let buffers = either_apart(input, it.received(total(counts)?)?)?;
            it.call_with(Collective::AllGather, Some(counts), None, buffers)
        }
    })
}

/// As maypole_reduce_scatter(), but rank r receives `counts[r]` elements: `send` has all of them.
/// All ranks pass the same `counts`, one a rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_reduce_scatter_v(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: maypole_data_type_t,
    op: maypole_op_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, counts and buffers of those lengths.
        unsafe {
            let it = Arguments::new(comm, data_type, op, (send, recv))?;
            let counts = counts_of(counts, it.comm.world())?;
            let input = it.sent(total(counts)?)?;
            let buffers = either_apart(input, it.received(counts[it.comm.rank()])?)?;
            it.call_with(Collective::ReduceScatter, Some(counts), None, buffers)
        }
    })
}

/// As maypole_all_to_all(), but the block for rank r has `send_counts[r]` elements, and the block
/// from rank s has `recv_counts[s]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_all_to_all_v(
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    data_type: maypole_data_type_t,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, counts and buffers of those lengths.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, recv))?;
            let sent = counts_of(send_counts, it.comm.world())?;
            let received = counts_of(recv_counts, it.comm.world())?;
            let buffers = either_apart(it.sent(total(sent)?)?, it.received(total(received)?)?)?;
            it.call_with(Collective::AllToAll, Some(sent), Some(received), buffers)
        }
    })
}

/// # Safety
/// As [`either`].
unsafe fn either_apart<'a>(
    input: RawBuffer,
    output: RawBuffer,
) -> Result<ErasedBuffers<'a>, Failure> {
    // SAFETY: the caller's promise.
    match unsafe { either(input, output) }? {
        ErasedBuffers::InPlace([]) => Ok(ErasedBuffers::Apart(&[], &mut [])),
        buffers => Ok(buffers),
    }
}

/// Sends `send` (count elements) to rank `peer`, which receives it with the same `tag`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_send(
    send: *const c_void,
    count: usize,
    data_type: maypole_data_type_t,
    peer: usize,
    tag: u32,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and a buffer of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (send, std::ptr::null_mut()))?;
            let data = it.sent(count)?.bytes();
            Ok(it.comm.lock()?.send_erased(it.data_type, data, peer, tag)?)
        }
    })
}

/// Receives `recv` (count elements) from rank `peer`, which sends it with the same `tag`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_recv(
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    peer: usize,
    tag: u32,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and a buffer of that length.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (std::ptr::null(), recv))?;
            let data = it.received(count)?.bytes_mut();
            it.comm.lock()?.recv_erased(it.data_type, data, Some(peer), tag)?;
            Ok(())
        }
    })
}

/// Receives a message of at most `count` elements from any rank. `peer` becomes the rank that it
/// came from, and `received` how many elements it had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_recv_any(
    recv: *mut c_void,
    count: usize,
    data_type: maypole_data_type_t,
    tag: u32,
    peer: *mut usize,
    received: *mut usize,
    comm: maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, a buffer of that length, and two places.
        unsafe {
            let it = Arguments::new(comm, data_type, MAYPOLE_SUM, (std::ptr::null(), recv))?;
            let data = it.received(count)?.bytes_mut();
            let (from, elements) = it.comm.lock()?.recv_erased(it.data_type, data, None, tag)?;
            put(peer, from, "the place for the rank")?;
            put(received, elements, "the place for the count")
        }
    })
}
