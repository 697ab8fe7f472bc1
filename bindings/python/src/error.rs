//! The exceptions that failed calls raise: the classes of `maypole._errors`, one for each kind.

use maypole::{Error, FailureKind};
use pyo3::prelude::*;

/// The kind of a failure that all ranks have is that of the first one, whichever rank detected it.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } | Error::Value { .. } => "invalid",
        Error::Connect { .. } => "connect",
        Error::Join { .. } => "join",
        Error::Forked { .. } => "forked",
        Error::Unsupported { .. } => "unsupported",
        Error::Device { .. } => "failed",
        _ => match error.kind() {
            Some(FailureKind::Death) => "peer lost",
            Some(FailureKind::Mismatch) => "mismatch",
            Some(FailureKind::Timeout) => "timed out",
            Some(FailureKind::UserAbort) => "aborted",
            _ => "failed",
        },
    }
}

fn exception(kind: &str, text: String, culprit: Option<usize>, retryable: bool) -> PyErr {
    Python::attach(|py| {
        let classes = py.import("maypole._errors");
        let made = classes.and_then(|it| it.call_method1("make", (kind, text, culprit, retryable)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// The exception for `error`.
pub(crate) fn raise(error: &Error) -> PyErr {
    exception(kind(error), error.to_string(), error.culprit(), error.is_retryable())
}

/// The exception for a wrong argument.
pub(crate) fn invalid(why: impl Into<String>) -> PyErr {
    exception("invalid", why.into(), None, false)
}

/// The exception for an argument of a wrong type.
pub(crate) fn invalid_type(why: impl Into<String>) -> PyErr {
    exception("type", why.into(), None, false)
}

/// The exception for a panic of the library, which is a defect.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    let said = said.unwrap_or_else(|| "no message".to_owned());
    exception("panic", format!("maypole panicked: {said}"), None, false)
}
