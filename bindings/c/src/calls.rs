//! The collectives with equal counts on all ranks, and the code common to all calls.

use crate::buffers::{AnyBuffers, RawBuffer, placed};
use crate::communicator::{borrow, maypole_comm, maypole_comm_t};
use crate::error::{Failure, guarded, maypole_result_t};
use crate::types::{MAYPOLE_SUM, data_type, maypole_data_type_t, maypole_op_t, operation};
use maypole::DataType;
use maypole::schedule::collective::{Collective, HeldChunks};
use std::ffi::c_void;

/// The common arguments of all calls.
pub(crate) struct Arguments<'a> {
    pub(crate) comm: &'a maypole_comm,
    pub(crate) data_type: DataType,
    op: maypole_op_t,
    send: *const c_void,
    recv: *mut c_void,
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// As [`borrow`].
    pub(crate) unsafe fn new(
        comm: maypole_comm_t,
        data_type_number: maypole_data_type_t,
        op: maypole_op_t,
        (send, recv): (*const c_void, *mut c_void),
    ) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
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

    pub(crate) fn sent(&self, count: usize) -> Result<RawBuffer, Failure> {
        RawBuffer::new(self.send, count, self.size())
    }

    pub(crate) fn received(&self, count: usize) -> Result<RawBuffer, Failure> {
        RawBuffer::new(self.recv, count, self.size())
    }

    /// Runs a collective with `count` on all ranks. It is in place if this rank's parts of both buffers
    /// have the same address.
    ///
    /// # Safety
    /// Each buffer that this rank needs has the length of the call, and no other user.
    unsafe fn call_even(&self, collective: Collective, count: usize) -> Result<(), Failure> {
        let rank = self.comm.rank();
        let (brings, keeps) = (collective.input(rank), collective.output(rank));
        let elements = |held| match held {
            HeldChunks::Nothing => Ok(0),
            HeldChunks::All if collective.is_blocked() => self.whole(count),
            HeldChunks::All | HeldChunks::One(_) => Ok(count),
        };
        let (input, output) = (self.sent(elements(brings)?)?, self.received(elements(keeps)?)?);
        // SAFETY: the caller guarantees it.
        let buffers = unsafe { self.placed(collective, input, output, true) }?;
        self.call(collective, buffers)
    }

    /// The buffers of `collective`, whose blocks have counts unless `is_even`.
    ///
    /// # Safety
    /// As [`placed`].
    pub(crate) unsafe fn placed(
        &self,
        collective: Collective,
        input: RawBuffer,
        output: RawBuffer,
        is_even: bool,
    ) -> Result<AnyBuffers<'a>, Failure> {
        let call = (collective, self.comm.rank(), self.comm.world());
        // SAFETY: the caller guarantees it.
        unsafe { placed(call, self.data_type, (input, output), is_even) }
    }

    pub(crate) fn call(
        &self,
        collective: Collective,
        buffers: AnyBuffers<'_>,
    ) -> Result<(), Failure> {
        Ok(self.comm.lock()?.call(collective, buffers, operation(self.op)?)?)
    }
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
            it.call_even(Collective::Broadcast { root }, count)
        }
    })
}

/// Reduces the `send` (count elements) of all ranks into the root's `recv` (count). `recv` of other
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
            it.call_even(Collective::Reduce { root }, count)
        }
    })
}

/// Reduces the `send` (count elements) of all ranks into every rank's `recv` (count). In place if
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
            it.call_even(Collective::AllReduce, count)
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
            it.call_even(Collective::AllGather, count)
        }
    })
}

/// Reduces the `send` (world * count elements) of all ranks, and scatters block r of the result to
/// rank r's `recv` (count). In place if `recv` is this rank's block of `send`.
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
            it.call_even(Collective::ReduceScatter, count)
        }
    })
}

/// Sends block r of `send` (world * count elements) to rank r, and receives block s of `recv`
/// (world * count) from rank s. In place if `send == recv`.
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
            it.call_even(Collective::AllToAll, count)
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
            it.call_even(Collective::Gather { root }, count)
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
            it.call_even(Collective::Scatter { root }, count)
        }
    })
}

/// Reduces the `send` (count elements) of ranks 0 to r into rank r's `recv` (count). In place if
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
            it.call_even(Collective::Scan, count)
        }
    })
}

/// Reduces the `send` (count elements) of ranks 0 to r - 1 into rank r's `recv` (count). Rank 0's
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
            it.call_even(Collective::ExclusiveScan, count)
        }
    })
}
