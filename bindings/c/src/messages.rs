//! Messages between two ranks.

use crate::calls::Arguments;
use crate::communicator::{maypole_comm_t, put};
use crate::error::{guarded, maypole_result_t};
use crate::types::{MAYPOLE_SUM, maypole_data_type_t};
use maypole::{AnySlice, AnySliceMut};
use std::ffi::c_void;

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
            Ok(it.comm.lock()?.send(AnySlice::new(it.data_type, data), peer, tag)?)
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
            Ok(it.comm.lock()?.recv(AnySliceMut::new(it.data_type, data), peer, tag)?)
        }
    })
}

/// Receives a message of at most `count` elements from any rank. `peer` becomes the sender's rank,
/// and `received` the number of elements.
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
            let data = AnySliceMut::new(it.data_type, data);
            let (from, elements) = it.comm.lock()?.recv_any(data, tag)?;
            put(peer, from, "the place for the rank")?;
            put(received, elements, "the place for the count")
        }
    })
}
