//! Bytes between ranks. This crate contains no collective.
//!
//! # Boards and streams
//!
//! An executor reaches its peers in two ways. Ranks of one host share a [`board`]: each rank has
//! rings of slots that all others read in place. Every other peer is at the other end of a
//! [`stream`]. No method of a board or a stream waits, allocates or locks, and boards make no
//! system calls. All waiting follows the policy in [`wait`].

/// Prints a value by its name alone: for keys, which are never printed, and for parts that mean nothing to a
/// reader.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($type:ty, $name:literal $(, $param:ident)?) => {
        impl$(<$param>)? ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(concat!($name, "(..)"))
            }
        }
    };
}

pub mod alarm;
mod any_stream;
mod bell;
pub mod board;
pub mod clock;
pub mod cores;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod deadline;
pub mod descriptor;
pub mod fork;
pub mod ib;
pub mod interfaces;
pub mod limits;
mod lock;
pub mod mem;
#[doc(hidden)]
pub mod parts;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod process_memory;
pub mod random;
mod read_ahead;
pub mod registered;
mod ring;
pub mod secure;
pub mod shm;
pub mod signals;
pub mod sockets;
pub mod stream;
pub mod tcp;
pub mod turns;
pub mod wait;
pub mod watch;

pub use alarm::{Alarm, ForegroundWait};
pub use any_stream::{AnyStream, TestStream};
pub use bell::Bell;
pub use board::Board;
pub use fork::OwnerProcess;
pub use lock::lock;
pub use mem::Mem;
pub use pipe::Pipe;
pub use secure::EncryptedStream;
pub use stream::{Fault, HEAD, Head, Stream};
pub use tcp::{LONGEST_AHEAD, Tcp};
pub use wait::{Interrupted, Sleep, Waiting};
