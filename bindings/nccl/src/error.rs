//! Results: a number, and the sentence of the last failure of the process.

use crate::abi::*;
use crate::group;
use crate::trace::Line;
use crate::variables::{self, DebugLevel};
use maypole::Error;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Why a call fails: what it returns, and what [`ncclGetLastError`] says.
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

    /// The arguments are right, and the call is not allowed, or not there.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { result: ncclInvalidUsage, text: text.into() }
    }

    /// CUDA reports an error, or is not there.
    pub(crate) fn cuda(text: impl Into<String>) -> Self {
        Self { result: ncclUnhandledCudaError, text: text.into() }
    }

    /// The system lacks something, or is set up in another way than the program says.
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

/// How a call ends that does not fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// What the call asks for is done, or is on its stream.
    Done,
    /// A thread goes on with it: [`ncclCommGetAsyncError`](crate::ncclCommGetAsyncError) tells when
    /// it is done.
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
            // What the call would have added to an open group is missing there.
            let failure = group::noted(Err::<(), _>(panicked(panic.as_ref()))).unwrap_err();
            report(function, &failure)
        }
    };
    // A failure to write the trace is none of the call's.
    let _ = catch_unwind(AssertUnwindSafe(|| line.write(result)));
    result
}

/// The failure that a caught panic is.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::internal(format!("Maypole panicked: {}", said.unwrap_or("no message")))
}

/// Keeps the sentence of a failure and writes it to the log. Returns the failure's number.
pub(crate) fn report(function: &str, failure: &Failure) -> ncclResult_t {
    let text = format!("{function}: {}", failure.text);
    remember(&text);
    variables::log(DebugLevel::Warn, || text);
    failure.result
}

/// Bytes of the sentence of the last failure, with the closing 0.
const ROOM: usize = 1024;

/// The sentence of the last failure of the process, ended by 0. Its last byte is always 0, so a
/// reader that comes while the sentence changes may see parts of two sentences, and nothing else.
static LAST: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];

/// Makes `text` what [`ncclGetLastError`] says.
pub(crate) fn remember(text: &str) {
    static WRITER: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fits = (0..ROOM).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    for (place, byte) in LAST.iter().zip(text.as_bytes()[..fits].iter().chain(&[0])) {
        place.store(*byte, Relaxed);
    }
}

/// Returns what the last failure of the process says: which rank, in which call, why. Valid for
/// ever; empty if nothing has failed. The communicator makes no difference and may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    LAST.as_ptr().cast()
}

/// As [`ncclGetLastError`], for a profiler that has its own function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn pncclGetLastError(comm: ncclComm_t) -> *const c_char {
    ncclGetLastError(comm)
}

/// Returns the sentence of a result, as NCCL has it: programs compare these. Valid for ever.
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

/// As [`ncclGetErrorString`], for a profiler that has its own function of that name.
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
        // SAFETY: valid for ever, and ended by 0.
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
