//! Results: an error code, and the message of the last failure on this thread.

use maypole::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call.
pub type maypole_result_t = u32;
/// The call succeeded.
pub const MAYPOLE_SUCCESS: maypole_result_t = 0;
/// An argument is wrong. Nothing was sent, and the communicator remains usable.
pub const MAYPOLE_INVALID: maypole_result_t = 1;
/// The ranks made different calls.
pub const MAYPOLE_MISMATCH: maypole_result_t = 2;
/// The timeout of a call expired.
pub const MAYPOLE_TIMED_OUT: maypole_result_t = 3;
/// A rank has exited or left.
pub const MAYPOLE_PEER_LOST: maypole_result_t = 4;
/// Another rank failed first, or a rank called maypole_abort().
pub const MAYPOLE_ABORTED: maypole_result_t = 5;
/// An earlier call on this communicator has failed.
pub const MAYPOLE_FAILED: maypole_result_t = 6;
/// The ranks could not be connected.
pub const MAYPOLE_CONNECT: maypole_result_t = 7;
/// The rendezvous of the ranks failed.
pub const MAYPOLE_JOIN: maypole_result_t = 8;
/// The communicator was made before this process was forked.
pub const MAYPOLE_FORKED: maypole_result_t = 9;
/// The call is not supported.
pub const MAYPOLE_UNSUPPORTED: maypole_result_t = 10;
/// A defect of this library: it panicked. The communicator has failed.
pub const MAYPOLE_PANIC: maypole_result_t = 11;

/// The error of a call.
pub(crate) struct Failure {
    result: maypole_result_t,
    text: String,
    culprit: Option<usize>,
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self { result: MAYPOLE_INVALID, text: text.into(), culprit: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let result = match &error {
            Error::Invalid { .. } | Error::Value { .. } => MAYPOLE_INVALID,
            Error::Mismatch { .. } => MAYPOLE_MISMATCH,
            Error::TimedOut { .. } => MAYPOLE_TIMED_OUT,
            Error::PeerLost { .. } => MAYPOLE_PEER_LOST,
            Error::Aborted { .. } => MAYPOLE_ABORTED,
            Error::Failed { .. } => MAYPOLE_FAILED,
            Error::Connect { .. } => MAYPOLE_CONNECT,
            Error::Join { .. } => MAYPOLE_JOIN,
            Error::Forked { .. } => MAYPOLE_FORKED,
            Error::Unsupported { .. } => MAYPOLE_UNSUPPORTED,
            _ => MAYPOLE_FAILED,
        };
        Self { result, text: error.to_string(), culprit: error.culprit() }
    }
}

thread_local! {
    /// The message and the culprit rank of the last failure on this thread.
    static LAST: RefCell<(CString, i64)> = RefCell::new((CString::default(), -1));
}

/// Runs `call`, stores the message of its failure, and returns the result code.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> maypole_result_t {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return MAYPOLE_SUCCESS,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            let said = said.unwrap_or_else(|| "no message".to_owned());
            let text = format!("maypole panicked: {said}");
            Failure { result: MAYPOLE_PANIC, text, culprit: None }
        }
    };
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    let culprit = failure.culprit.map_or(-1, |rank| rank as i64);
    LAST.with(|last| *last.borrow_mut() = (text, culprit));
    failure.result
}

/// Returns the message of the last failure on this thread: rank, call, and cause. Valid until the
/// next call fails on this thread. Empty if none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().0.as_ptr())
}

/// Returns the rank that caused the last failure on this thread; -1 if no single rank did.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_last_error_rank() -> i64 {
    LAST.with(|last| last.borrow().1)
}

/// Returns the name of a result, such as "timed out". A static string.
#[unsafe(no_mangle)]
pub extern "C" fn maypole_result_string(result: maypole_result_t) -> *const c_char {
    let name = match result {
        MAYPOLE_SUCCESS => c"success",
        MAYPOLE_INVALID => c"invalid argument",
        MAYPOLE_MISMATCH => c"calls do not match",
        MAYPOLE_TIMED_OUT => c"timed out",
        MAYPOLE_PEER_LOST => c"a rank is lost",
        MAYPOLE_ABORTED => c"aborted",
        MAYPOLE_FAILED => c"the communicator has failed",
        MAYPOLE_CONNECT => c"not connected",
        MAYPOLE_JOIN => c"not joined",
        MAYPOLE_FORKED => c"used in a forked child",
        MAYPOLE_UNSUPPORTED => c"unsupported",
        MAYPOLE_PANIC => c"panic",
        _ => c"unknown result",
    };
    name.as_ptr()
}
