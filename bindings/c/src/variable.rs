//! The collectives whose blocks differ in length.

use crate::calls::Arguments;
use crate::communicator::maypole_comm_t;
use crate::error::{Failure, guarded, maypole_result_t};
use crate::types::{MAYPOLE_SUM, maypole_data_type_t, maypole_op_t};
use maypole::schedule::collective::Collective;
use std::ffi::c_void;

/// # Safety
/// `counts` must be NULL or an array of `world` numbers.
unsafe fn counts_of<'a>(counts: *const usize, world: usize) -> Result<&'a [usize], Failure> {
    if counts.is_null() {
        return Err(Failure::invalid("the counts are NULL"));
    }
    // SAFETY: not null, and the caller guarantees its length.
    Ok(unsafe { std::slice::from_raw_parts(counts, world) })
}

fn total(counts: &[usize]) -> Result<usize, Failure> {
    let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    total.ok_or_else(|| Failure::invalid("the counts are too many elements together"))
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
            let output = it.received(total(counts)?)?;
            let buffers = it.placed(Collective::AllGather, input, output, false)?;
            it.call(Collective::AllGather, buffers.with_counts(None, Some(counts)))
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
            let output = it.received(counts[it.comm.rank()])?;
            let buffers = it.placed(Collective::ReduceScatter, input, output, false)?;
            it.call(Collective::ReduceScatter, buffers.with_counts(Some(counts), None))
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
            let (input, output) = (it.sent(total(sent)?)?, it.received(total(received)?)?);
            let buffers = it.placed(Collective::AllToAll, input, output, false)?;
            it.call(Collective::AllToAll, buffers.with_counts(Some(sent), Some(received)))
        }
    })
}
