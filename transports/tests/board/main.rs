//! The contract of the board, mounted for each kind of memory that ranks share.

#![allow(clippy::duplicate_mod, reason = "one contract, mounted for each memory")]

mod region;
#[cfg(target_os = "linux")]
mod segment;
