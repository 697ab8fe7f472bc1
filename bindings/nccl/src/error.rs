//! Results: an error code, and the message of the last failure of the process.

use crate::abi::*;
use crate::group;
use crate::trace::Line;
use crate::variables::{self, DebugLevel};
use maypole::Error;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The error of a call: its result code, and the message for [`ncclGetLastError`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) result: ncclResult_t,
    pub(crate) text: String,
}

impl Failure {
    /// An argument is wrong.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { result: ncclInvalidArgument, text: text.into() }
    }

    /// The arguments are valid, but the call is not allowed now, or not supported.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { result: ncclInvalidUsage, text: text.into() }
    }

    /// CUDA reports an error, or has no driver.
    pub(crate) fn cuda(text: impl Into<String>) -> Self {
        Self { result: ncclUnhandledCudaError, text: text.into() }
    }

    /// The system lacks a resource, or its setup contradicts the program's.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        Self { result: ncclSystemError, text: text.into() }
    }

    /// A rank is gone, or has ended the communicator.
    pub(crate) fn remote(text: impl Into<String>) -> Self {
        Self { result: ncclRemoteError, text: text.into() }
    }

    /// A defect of this library.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self { result: ncclInternalError, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let result = match &error {
            Error::Invalid { .. } | Error::Value { .. } => ncclInvalidArgument,
            Error::Mismatch { .. } | Error::Unsupported { .. } | Error::Forked { .. } => {
                ncclInvalidUsage
            }
            Error::Device { .. } => ncclUnhandledCudaError,
            Error::Join { .. } | Error::Connect { .. } => ncclSystemError,
            _ => ncclRemoteError,
        };
        Self { result, text: error.to_string() }
    }
}

/// The progress of a call that has not failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// The call has completed, or its work is on its stream.
    Done,
    /// A background thread runs the call. [`ncclCommGetAsyncError`](crate::ncclCommGetAsyncError) returns
    /// `ncclInProgress` until it has completed.
    Running,
}

impl From<()> for Progress {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Runs the body of `function`, writes its line of the trace, and returns its result. A panic is an
/// internal error.
pub(crate) fn guarded<P: Into<Progress>>(
    function: &'static str,
    body: impl FnOnce(&mut Line) -> Result<P, Failure>,
) -> ncclResult_t {
    let mut line = Line::new(function);
    let done = catch_unwind(AssertUnwindSafe(|| body(&mut line).map(Into::into)));
    let result = match done {
        Ok(Ok(Progress::Done)) => ncclSuccess,
        Ok(Ok(Progress::Running)) => ncclInProgress,
        Ok(Err(failure)) => report(function, &failure),
        Err(panic) => {
            // An open group lacks the call that panicked, so the group must fail.
            let failure = group::noted(Err::<(), _>(panicked(panic.as_ref()))).unwrap_err();
            report(function, &failure)
        }
    };
    // A failure to write the trace does not fail the call.
    let _ = catch_unwind(AssertUnwindSafe(|| line.write(result)));
    result
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::internal(format!("Maypole panicked: {}", said.unwrap_or("no message")))
}

/// Stores the message of a failure and logs it. Returns the failure's code.
pub(crate) fn report(function: &str, failure: &Failure) -> ncclResult_t {
    let text = format!("{function}: {}", failure.text);
    remember(&text);
    variables::log(DebugLevel::Warn, || text);
    failure.result
}

/// Bytes of the buffer for the last message, with the terminating 0.
const ROOM: usize = 1024;

/// The message of the last failure of the process, terminated by 0. The last byte of the buffer is always
/// 0, so a reader that races with a writer sees at worst parts of two messages.
static LAST: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];

/// Makes `text` the message of [`ncclGetLastError`].
pub(crate) fn remember(text: &str) {
    static WRITER: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fits = (0..ROOM).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    for (place, byte) in LAST.iter().zip(text.as_bytes()[..fits].iter().chain(&[0])) {
        place.store(*byte, Relaxed);
    }
}

/// Returns the message of the last failure of the process: rank, call, and cause. The pointer is valid
/// until the process exits; the message is empty if nothing has failed. The communicator is ignored
/// and may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    LAST.as_ptr().cast()
}

/// Equal to [`ncclGetLastError`], for a profiler that defines its own function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn pncclGetLastError(comm: ncclComm_t) -> *const c_char {
    ncclGetLastError(comm)
}

/// Returns NCCL's own message for a result, because programs compare it. The pointer is valid until the
/// process exits.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        ncclSuccess => c"no error",
        ncclUnhandledCudaError => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        ncclSystemError => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        ncclInternalError => c"internal error - please report this issue to the NCCL developers",
        ncclInvalidArgument => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        ncclInvalidUsage => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        ncclRemoteError => c"remote process exited or there was a network error",
        ncclInProgress => c"NCCL operation in progress",
        ncclTimeout => c"timeout",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Equal to [`ncclGetErrorString`], for a profiler that defines its own function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn pncclGetErrorString(result: c_int) -> *const c_char {
    ncclGetErrorString(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        let text = ncclGetLastError(std::ptr::null_mut());
        // SAFETY: a static string, terminated by 0.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_last_failure_is_kept_and_no_panic_gets_out() {
        let failed = guarded("ncclTest", |_| Err::<(), _>(Failure::usage("not like this")));
        assert_eq!((failed, last().as_str()), (ncclInvalidUsage, "ncclTest: not like this"));
        assert_eq!(guarded("ncclTest", |_| Ok(())), ncclSuccess);
        assert_eq!(last(), "ncclTest: not like this", "a success changes nothing");
        assert_eq!(guarded("ncclTest", |_| Ok(Progress::Running)), ncclInProgress);
        let panics = |_: &mut Line| -> Result<(), Failure> { panic!("a defect") };
        assert_eq!(guarded("ncclTest", panics), ncclInternalError);
        assert_eq!(last(), "ncclTest: Maypole panicked: a defect");
        let long = "\u{20ac}".repeat(ROOM);
        guarded("ncclTest", |_| Err::<(), _>(Failure::usage(long.clone())));
        assert!(last().len() > ROOM - 8 && last().len() < ROOM);
    }

    #[test]
    fn sentences_are_those_that_programs_compare() {
        // SAFETY: a constant string.
        let text = |result| unsafe { CStr::from_ptr(ncclGetErrorString(result)) };
        assert_eq!(text(ncclSuccess), c"no error");
        assert_eq!(text(ncclRemoteError), c"remote process exited or there was a network error");
        assert_eq!((text(-1), text(9)), (c"unknown result code", c"unknown result code"));
    }
}
