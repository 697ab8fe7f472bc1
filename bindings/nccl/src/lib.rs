//! Maypole under NCCL's names: the library `libnccl.so.2`.
//!
//! A program that was built for NCCL runs on Maypole when this library is loaded instead of
//! NVIDIA's. `README.md` describes how, and lists the unsupported functions.
//!
//! Three rules hold for every function:
//!
//! - Only calls that make or end a communicator wait for another rank. So a caller of any other may
//!   hold a lock that other calls need.
//! - The caller's current CUDA context is the same before and after a call.
//! - No panic crosses the border: it becomes `ncclInternalError`.
//!
//! | module | contents |
//! |---|---|
//! | `abi` | the types, values and layouts of NCCL |
//! | `error` | results, and the message of the last failure |
//! | `trace` | a file with a line for each call |
//! | `variables`, `conf` | environment variables, and files that set variables |
//! | `address` | the rendezvous address of a group |
//! | `core` | the imported parts of CUDA and of the library |
//! | `communicator` | communicators, and the table of their handles |
//! | `init` | makes and ends communicators |
//! | `leaving` | the shutdown of a rank, in a background thread |
//! | `operations` | sums with a factor |
//! | `calls` | collectives and messages |
//! | `group` | calls that start together |
//! | `memory` | allocation, registration, and queries of a communicator |
//! | `real` | NVIDIA's library, for groups that Maypole cannot serve |
//! | `teams` | NCCL's teams of near ranks, for programs with kernels of their own |
//! | `absent` | unsupported functions |
#![allow(non_camel_case_types, reason = "the names are those of NCCL")]
#![allow(non_upper_case_globals, reason = "the names are those of NCCL")]
#![allow(non_snake_case, reason = "the names are those of NCCL")]
#![allow(clippy::missing_safety_doc, reason = "a C interface: all pointers are the caller's")]

#[macro_use]
mod border;

mod abi;
mod absent;
mod address;
mod calls;
mod communicator;
mod conf;
mod core;
mod error;
mod group;
mod init;
mod leaving;
mod memory;
mod operations;
mod real;
mod teams;
mod trace;
mod variables;

pub use abi::*;
pub use absent::*;
pub use calls::*;
pub use error::*;
pub use group::*;
pub use init::*;
pub use memory::*;
pub use operations::*;
pub use teams::*;
pub use variables::*;
