//! What calls and messages are given: each argument is whatever converts to one of these types.

pub(crate) mod buffers;
pub(crate) mod operation;
pub(crate) mod slices;
