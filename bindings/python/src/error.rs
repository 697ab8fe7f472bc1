//! The exception that every failed call raises.

use maypole::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(
    maypole,
    MaypoleError,
    PyRuntimeError,
    "A call has failed. `kind` says how (\"timed out\", \"mismatch\", ...), `culprit` is the rank to \
     look at first or None, and `retryable` says whether the same program may succeed another time."
);

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } | Error::Value { .. } => "invalid",
        Error::Mismatch { .. } => "mismatch",
        Error::TimedOut { .. } => "timed out",
        Error::PeerLost { .. } => "peer lost",
        Error::Aborted { .. } => "aborted",
        Error::Connect { .. } => "connect",
        Error::Join { .. } => "join",
        Error::Forked { .. } => "forked",
        Error::Unsupported { .. } => "unsupported",
        _ => "failed",
    }
}

fn exception(kind: &str, text: String, culprit: Option<usize>, retryable: bool) -> PyErr {
    let error = MaypoleError::new_err(text);
    Python::attach(|py| {
        let value = error.value(py);
        let set = value.setattr("kind", kind).and(value.setattr("culprit", culprit));
        // The exception has a dictionary, so this succeeds unless memory is exhausted.
        let _ = set.and(value.setattr("retryable", retryable));
    });
    error
}

/// The exception for `error`.
pub(crate) fn raise(error: &Error) -> PyErr {
    exception(kind(error), error.to_string(), error.culprit(), error.is_retryable())
}

/// The exception for a wrong argument.
pub(crate) fn invalid(why: impl Into<String>) -> PyErr {
    exception("invalid", why.into(), None, false)
}

/// The exception for a panic of the library, which is a defect.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    let said = said.unwrap_or_else(|| "no message".to_owned());
    exception("panic", format!("maypole panicked: {said}"), None, false)
}
