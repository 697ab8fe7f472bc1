//! Allocation and registration of memory, and queries of a communicator.

use crate::abi::{ncclComm_t, ncclResult_t, ncclSuccess, ncclWindow_t};
use crate::communicator;
use crate::core;
use crate::error::{Failure, Progress, remember};
use crate::variables::{self, DebugLevel, put};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};

/// The GPU of each allocation of [`ncclMemAlloc`].
static ALLOCATED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

fn allocated() -> MutexGuard<'static, BTreeMap<u64, usize>> {
    ALLOCATED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The handle of a registration of memory at address 0.
const NOTHING: usize = 1;

exported! {
    /// Allocates memory of the current GPU. Returns NULL for 0 bytes.
    fn ncclMemAlloc, pncclMemAlloc(line; memory: *mut *mut c_void, bytes: usize) {
        line.count(bytes);
        if memory.is_null() {
            return Err(Failure::argument("the place for the memory is NULL"));
        }
        let mut address = 0;
        if bytes > 0 {
            address = core::preserving(|_| {
                let context = core::context(core::current_device()?)?;
                let address = core::allocate(&context, bytes)?;
                allocated().insert(address, context.ordinal());
                Ok(address)
            })?;
        }
        let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller passes a place for a pointer.
        unsafe { put(memory, pointer, "the place for the memory") }
    }

    /// Frees memory of `ncclMemAlloc`. NULL is ignored.
    fn ncclMemFree, pncclMemFree(_line; memory: *mut c_void) {
        if memory.is_null() {
            return Ok(());
        }
        let address = memory.expose_provenance() as u64;
        core::preserving(|_| {
            let known = allocated().remove(&address);
            // CUDA refuses memory of other allocators, so it checks unregistered addresses.
            let ordinal = known.map_or_else(core::current_device, Ok)?;
            // SAFETY: the caller no longer uses the memory.
            unsafe { core::free(&core::context(ordinal)?, address) }
        })
    }

    /// Registers a buffer, which makes calls faster in NCCL and has no effect here. Takes no lock that
    /// a call may hold, because allocators call this with their own lock held.
    fn ncclCommRegister, pncclCommRegister(
        line;
        comm: ncclComm_t,
        memory: *mut c_void,
        bytes: usize,
        handle: *mut *mut c_void,
    ) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        line.count(bytes);
        if let Some(real) = communicator.real() {
            let token = real.register(memory, bytes)?;
            let token = std::ptr::with_exposed_provenance_mut(token);
            // SAFETY: the caller passes a place for a handle.
            return unsafe { put(handle, token, "the place for the handle") };
        }
        let token = match memory.is_null() {
            true => std::ptr::without_provenance_mut(NOTHING),
            false => memory,
        };
        // SAFETY: the caller passes a place for a handle.
        unsafe { put(handle, token, "the place for the handle") }
    }

    /// Ends a registration. NULL is ignored.
    fn ncclCommDeregister, pncclCommDeregister(line; comm: ncclComm_t, handle: *mut c_void) {
        if handle.is_null() {
            return Ok(());
        }
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        communicator.real().map_or(Ok(()), |real| real.deregister(handle))
    }

    /// Registers memory as a window, by which NCCL's ranks reach each other's memory. Windows are not
    /// supported here: `*window` becomes NULL.
    fn ncclCommWindowRegister, pncclCommWindowRegister(
        line;
        comm: ncclComm_t,
        _memory: *mut c_void,
        bytes: usize,
        window: *mut ncclWindow_t,
        _flags: c_int,
    ) {
        line.communicator(communicator::find(comm)?.number);
        line.count(bytes);
        // SAFETY: the caller passes a place for a window.
        unsafe { put(window, std::ptr::null_mut(), "the place for the window") }
    }

    /// Ends a window. NULL is ignored; any other is refused.
    fn ncclCommWindowDeregister, pncclCommWindowDeregister(
        line;
        comm: ncclComm_t,
        window: ncclWindow_t,
    ) {
        line.communicator(communicator::find(comm)?.number);
        match window.is_null() {
            true => Ok(()),
            false => Err(Failure::argument("there is no such window")),
        }
    }

    /// Stores the number of ranks.
    fn ncclCommCount, pncclCommCount(line; comm: ncclComm_t, count: *mut c_int) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        // SAFETY: the caller passes a place for a number.
        unsafe { put(count, communicator.world as c_int, "the place for the count") }
    }

    /// Stores the ordinal of the GPU in this process.
    fn ncclCommCuDevice, pncclCommCuDevice(line; comm: ncclComm_t, device: *mut c_int) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        let ordinal = communicator.context.ordinal();
        // SAFETY: the caller passes a place for a number.
        unsafe { put(device, ordinal as c_int, "the place for the device") }
    }

    /// Stores this rank, from 0.
    fn ncclCommUserRank, pncclCommUserRank(line; comm: ncclComm_t, rank: *mut c_int) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        // SAFETY: the caller passes a place for a number.
        unsafe { put(rank, communicator.rank as c_int, "the place for the rank") }
    }

    /// Stores the state of the communicator: 0 without a failure, 7 while a background thread makes or ends
    /// something, else the error of its calls. Does not block, and may be called from any thread.
    fn ncclCommGetAsyncError, pncclCommGetAsyncError(
        line;
        comm: ncclComm_t,
        error: *mut ncclResult_t,
    ) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        let state = match communicator.state() {
            Ok(Progress::Done) => ncclSuccess,
            Ok(Progress::Running) => crate::abi::ncclInProgress,
            Err(failure) => {
                remember(&failure.text);
                // Programs poll, so a failure is logged once.
                if communicator.tells_first() {
                    variables::log(DebugLevel::Warn, || failure.text.clone());
                }
                failure.result
            }
        };
        line.details(|| format!("state={state}"));
        // SAFETY: the caller passes a place for a result.
        unsafe { put(error, state, "the place for the result") }
    }
}
