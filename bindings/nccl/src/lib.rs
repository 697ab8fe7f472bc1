//! Maypole under NCCL's names: the library `libnccl.so.2`.
//!
//! A program that was built for NCCL runs on Maypole when this library is loaded in place of
//! NVIDIA's. `README.md` says how, and which functions do nothing here.
//!
//! Three rules hold for every function:
//!
//! - No call waits for another rank, but those that make or end a communicator. So a caller may
//!   hold a lock that other calls need.
//! - The caller's current CUDA context is the same before and after a call.
//! - No panic crosses the border: it becomes `ncclInternalError`.
//!
//! | module | what |
//! |---|---|
//! | `abi` | the types, values and layouts of NCCL |
//! | `error` | results, and the sentence of the last failure |
//! | `trace` | a file with a line for each call |
//! | `variables`, `conf` | what the environment says, and files that set variables |
//! | `address` | where the ranks of a group meet |
//! | `core` | what is used of CUDA and of the library |
//! | `communicator` | communicators, and the table of their handles |
//! | `init` | how communicators are made and ended |
//! | `leaving` | how a rank leaves a group without holding up its caller |
//! | `operations` | sums with a factor |
//! | `calls` | collectives and messages |
//! | `group` | calls that start together |
//! | `memory` | memory, registration, and what is known about a communicator |
//! | `real` | NVIDIA's library, for groups that Maypole cannot serve |
//! | `teams` | which ranks are near, for programs with kernels of their own |
//! | `absent` | functions that do nothing |
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
