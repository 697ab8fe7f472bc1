//! The arguments of calls and messages. A method takes anything that converts to one of these types.

pub(crate) mod buffers;
pub(crate) mod operation;
pub(crate) mod owned;
pub(crate) mod placement;
pub(crate) mod slices;
