//! Ending a group on purpose, and continuing after a failure.

pub(crate) mod abort;
mod shrink;
