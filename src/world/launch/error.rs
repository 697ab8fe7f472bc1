//! Why the environment does not determine the rank of this process.

use std::fmt::Display;
use thiserror::Error;

/// The environment does not determine the rank of this process, or contradicts itself; or the job
/// key or the process manager that it names cannot be used. The message names the variable and the
/// remedy, and no variant tells more than it: a program can only print it.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct LaunchError(String);

impl LaunchError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of a variable has another form than `expected`.
    pub(super) fn malformed(variable: &str, value: impl AsRef<str>, expected: &str) -> Self {
        Self(format!("{variable} is {:?}, but must be {expected}", value.as_ref()))
    }

    /// Two launchers name different ranks, and it is unknown which one started this process.
    pub(super) fn contradiction(first: &str, second: &str) -> Self {
        Self(format!(
            "{first}, but {second}: unset the variables that do not belong to the launcher of this \
             process, or set MAYPOLE_RANK and MAYPOLE_WORLD in the command that it starts, which \
             overrule both"
        ))
    }

    /// The same error, with the variable or file in front of it.
    pub(super) fn at(self, place: impl Display) -> Self {
        Self(format!("{place}: {self}"))
    }
}
