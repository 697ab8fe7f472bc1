//! Ending a group on purpose, and going on after a failure.

pub(crate) mod abort;
mod shrink;
