//! Bytes between ranks. This crate knows no collective.
//!
//! # Boards and streams
//!
//! An executor reaches its peers in two ways. Ranks of one host share a [`board`]: each rank has
//! rings of slots that all others read in place. Every other peer is at the other end of a
//! [`stream`]. No method of a board or a stream waits, allocates or locks, and boards make no
//! system calls. All waiting follows the policy in [`wait`].

#[cfg(target_os = "linux")]
pub mod affinity;
pub mod alarm;
#[cfg(target_os = "linux")]
mod any_stream;
pub mod board;
pub mod clock;
pub mod cores;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(target_os = "linux")]
pub mod deadline;
pub mod descriptor;
pub mod fork;
#[cfg(target_os = "linux")]
pub mod ib;
pub mod interfaces;
pub mod mem;
#[doc(hidden)]
pub mod parts;
#[cfg(target_os = "linux")]
pub mod pipe;
pub mod poll;
pub mod process;
#[cfg(target_os = "linux")]
pub mod process_memory;
pub mod random;
#[cfg(target_os = "linux")]
mod read_ahead;
#[cfg(target_os = "linux")]
pub mod registered;
mod ring;
#[cfg(target_os = "linux")]
pub mod secure;
#[cfg(target_os = "linux")]
pub mod shm;
#[cfg(target_os = "linux")]
pub mod signals;
#[cfg(target_os = "linux")]
pub mod sockets;
pub mod stream;
#[cfg(target_os = "linux")]
pub mod tcp;
pub mod turns;
pub mod wait;
#[cfg(target_os = "linux")]
pub mod watch;

pub use alarm::{Alarm, ForegroundWait};
#[cfg(target_os = "linux")]
pub use any_stream::{AnyStream, TestStream};
pub use board::Board;
pub use fork::OwnerProcess;
pub use mem::Mem;
#[cfg(target_os = "linux")]
pub use pipe::Pipe;
#[cfg(target_os = "linux")]
pub use secure::EncryptedStream;
pub use stream::{Fault, HEAD, Head, Stream};
#[cfg(target_os = "linux")]
pub use tcp::{LONGEST_AHEAD, SystemCalls, Tcp};
pub use wait::{Interrupted, Sleep, Waiting};
