//! Maypole's C interface: `maypole.h` is its header.
//!
//! Each function checks its arguments, makes slices of them, and calls
//! [`Communicator::call`](maypole::Communicator::call). No panic crosses the border:
//! it becomes [`MAYPOLE_PANIC`].
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(clippy::missing_safety_doc, reason = "a C interface: all pointers are the caller's")]

mod buffers;
mod calls;
mod communicator;
mod error;
mod messages;
mod types;
mod variable;

pub use calls::*;
pub use communicator::*;
pub use error::*;
pub use messages::*;
pub use types::*;
pub use variable::*;
