//! Communicators: joining, leaving, and queries.

use crate::buffers::RawBuffer;
use crate::error::{Failure, guarded, maypole_result_t};
use crate::types::operation;
use crate::types::{
    collective, data_type, maypole_collective_t, maypole_data_type_t, maypole_op_t,
};
use maypole::{AbortHandle, Communicator, Local, RegisteredBuffer};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// One rank's membership in a group of ranks.
pub struct maypole_comm {
    communicator: Mutex<Communicator>,
    abort: AbortHandle,
    rank: usize,
    world: usize,
    registered: Mutex<BTreeMap<usize, RegisteredBuffer<u64>>>,
}

/// One rank's membership in a group of ranks. NULL is refused everywhere.
pub type maypole_comm_t = *mut maypole_comm;

impl maypole_comm {
    fn new(communicator: Communicator) -> Self {
        let abort = communicator.abort_handle();
        let rank = communicator.rank();
        let world = communicator.world();
        let registered = Mutex::default();
        Self { communicator: Mutex::new(communicator), abort, rank, world, registered }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn world(&self) -> usize {
        self.world
    }

    /// Locks the communicator. Fails if another thread holds the lock.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Communicator>, Failure> {
        match self.communicator.try_lock() {
            Ok(communicator) => Ok(communicator),
            // After a panic the communicator has failed, and refuses every call itself.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let why = "another thread uses this communicator: give each thread its own, by \
                           maypole_duplicate()";
                Err(Failure::invalid(why))
            }
        }
    }
}

/// # Safety
/// `comm` must be NULL or have been made by this library and not been closed.
pub(crate) unsafe fn borrow<'a>(comm: maypole_comm_t) -> Result<&'a maypole_comm, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { comm.as_ref() }.ok_or_else(|| Failure::invalid("the communicator is NULL"))
}

/// Writes `value` to `to`.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, name: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: not null, so the caller guarantees that it is writable.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// As [`put`].
unsafe fn hand_out(comm: *mut maypole_comm_t, made: Communicator) -> Result<(), Failure> {
    if comm.is_null() {
        return Err(Failure::invalid("the place for the communicator is NULL"));
    }
    // SAFETY: not null, so the caller guarantees that it is writable.
    unsafe { comm.write(Box::into_raw(Box::new(maypole_comm::new(made)))) };
    Ok(())
}

/// # Safety
/// `text` must be NULL or a string.
unsafe fn text_of(text: *const c_char, otherwise: &str) -> String {
    match text.is_null() {
        true => otherwise.to_owned(),
        // SAFETY: not null, so the caller guarantees a string.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

/// Returns the version of this library, such as "0.1.0". A static string.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Joins the world of this process, from the variables of its launcher: `maypole run`, torchrun,
/// mpirun, srun or another one. A process without a launcher is a world of one. maypole_close() ends
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_init(comm: *mut maypole_comm_t) -> maypole_result_t {
    guarded(|| {
        let made = Communicator::from_env()?;
        // SAFETY: the caller passes a place for a communicator.
        unsafe { hand_out(comm, made) }
    })
}

/// Makes the communicators of `world` threads of this process, one for each thread: `comms` has
/// room for `world` of them, by rank. Each thread calls maypole_close() on its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_init_threads(
    comms: *mut maypole_comm_t,
    world: usize,
) -> maypole_result_t {
    guarded(|| {
        if world == 0 || comms.is_null() {
            return Err(Failure::invalid("a world has a rank, and a place for its communicator"));
        }
        for (rank, made) in Local::new(world).build().into_iter().enumerate() {
            // SAFETY: the caller passes room for `world` communicators.
            unsafe { hand_out(comms.add(rank), made) }?;
        }
        Ok(())
    })
}

/// Leaves the group and frees the communicator, also on failure. Waits until sent messages have
/// arrived, and up to 5 s until the other ranks have made as many calls. Also frees the registered
/// memory of the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_close(comm: maypole_comm_t) -> maypole_result_t {
    guarded(|| {
        if comm.is_null() {
            return Err(Failure::invalid("the communicator is NULL"));
        }
        // SAFETY: made by `hand_out`, and not closed before, as the caller guarantees.
        let comm = unsafe { Box::from_raw(comm) };
        let communicator = comm.communicator.into_inner();
        Ok(communicator.unwrap_or_else(|poisoned| poisoned.into_inner()).close()?)
    })
}

/// Returns this rank, from 0 to world - 1; -1 if `comm` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_rank(comm: maypole_comm_t) -> i64 {
    // SAFETY: the caller passes a communicator.
    unsafe { borrow(comm) }.map_or(-1, |comm| comm.rank as i64)
}

/// Returns the number of ranks; -1 if `comm` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_world(comm: maypole_comm_t) -> i64 {
    // SAFETY: the caller passes a communicator.
    unsafe { borrow(comm) }.map_or(-1, |comm| comm.world as i64)
}

/// Ranks of equal `color` form a new group, ordered by `key` and then by rank. A rank with a
/// negative color joins none: its `made` becomes NULL. All ranks call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_split(
    comm: maypole_comm_t,
    color: i64,
    key: i64,
    made: *mut maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and a place for another one.
        unsafe {
            let group = borrow(comm)?.lock()?.split(u64::try_from(color).ok(), key)?;
            match group {
                Some(group) => hand_out(made, group),
                None => put(made, std::ptr::null_mut(), "the place for the communicator"),
            }
        }
    })
}

/// Makes another group of the same ranks, for another thread. All ranks call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_duplicate(
    comm: maypole_comm_t,
    made: *mut maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and a place for another one.
        unsafe {
            let group = borrow(comm)?.lock()?.duplicate()?;
            hand_out(made, group)
        }
    })
}

/// After a failure: makes a group of the surviving ranks. All of them call it. `comm` must still be
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_shrink(
    comm: maypole_comm_t,
    made: *mut maypole_comm_t,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator, and a place for another one.
        unsafe {
            let group = borrow(comm)?.lock()?.shrink()?;
            hand_out(made, group)
        }
    })
}

/// Aborts every call of the group on every rank. Any thread may call it. `why` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_abort(
    comm: maypole_comm_t,
    why: *const c_char,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator and a string.
        let (comm, why) = unsafe { (borrow(comm)?, text_of(why, "maypole_abort() was called")) };
        comm.abort.abort(&why);
        Ok(())
    })
}

/// Sets the timeout of calls that wait for other ranks, in milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_set_timeout(
    comm: maypole_comm_t,
    milliseconds: u64,
) -> maypole_result_t {
    guarded(|| {
        if milliseconds == 0 {
            return Err(Failure::invalid("a timeout is at least a millisecond"));
        }
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        comm.lock()?.set_timeout(Duration::from_millis(milliseconds));
        Ok(())
    })
}

/// If `on` is not 0, every sum is ((x0 + x1) + x2) + ...: its bits depend on the contributions
/// alone. All ranks set the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_set_deterministic(
    comm: maypole_comm_t,
    on: i32,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        comm.lock()?.set_deterministic(on != 0);
        Ok(())
    })
}

/// Explains the algorithm of a call of `count` elements in `text`, a buffer of `room` bytes with the
/// terminating 0. Longer text is truncated. `needed`, if it is not NULL, becomes the size for all of
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_explain(
    comm: maypole_comm_t,
    which: maypole_collective_t,
    count: usize,
    data_type_number: maypole_data_type_t,
    text: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        let size = data_type(data_type_number)?.size();
        let bytes =
            RawBuffer::new(std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), count, size)?;
        let said = comm.lock()?.explain(collective(which, 0)?, bytes.len).to_string();
        if !needed.is_null() {
            // SAFETY: not null, so the caller guarantees that it is writable.
            unsafe { needed.write(said.len() + 1) };
        }
        if room > 0 && !text.is_null() {
            let shown = &said.as_bytes()[..said.len().min(room - 1)];
            // SAFETY: the caller guarantees that `text` is a buffer of `room` bytes.
            unsafe {
                text.copy_from_nonoverlapping(shown.as_ptr().cast(), shown.len());
                text.add(shown.len()).write(0);
            }
        }
        Ok(())
    })
}

/// Allocates a registered buffer of `bytes` zeroed bytes. The other ranks of the host map it, so
/// that large calls on it copy each byte once. All ranks call it, each with its own length. The
/// buffer is aligned to a page. maypole_free() or maypole_close() frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_alloc(
    comm: maypole_comm_t,
    bytes: usize,
    memory: *mut *mut c_void,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        let mut buffer = comm.lock()?.alloc::<u64>(bytes.div_ceil(8).max(1))?;
        let start = buffer.as_mut_ptr();
        // SAFETY: the caller passes a place for a pointer.
        unsafe { put(memory, start.cast(), "the place for the memory") }?;
        let mut registered =
            comm.registered.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        registered.insert(start.addr(), buffer);
        Ok(())
    })
}

/// Frees a buffer of maypole_alloc(). The other ranks need not call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn maypole_free(
    comm: maypole_comm_t,
    memory: *mut c_void,
) -> maypole_result_t {
    guarded(|| {
        // SAFETY: the caller passes a communicator.
        let comm = unsafe { borrow(comm) }?;
        let mut registered =
            comm.registered.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match registered.remove(&memory.addr()) {
            Some(_) => Ok(()),
            None => Err(Failure::invalid("maypole_alloc() of this communicator did not make that")),
        }
    })
}

/// Returns 1 if a type supports an operation. Returns 0 if not, or for an unknown type or operation.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_supports(data_type_number: maypole_data_type_t, op: maypole_op_t) -> i32 {
    let known = data_type(data_type_number).ok().zip(operation(op).ok());
    known.is_some_and(|(data_type, op)| op.supports(data_type)).into()
}

/// Returns the bytes of an element; 0 for an unknown type.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_size(data_type_number: maypole_data_type_t) -> usize {
    data_type(data_type_number).map_or(0, |data_type| data_type.size())
}
