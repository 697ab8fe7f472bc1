//! The contract of the board, mounted for each kind of memory that ranks share.

mod region;
#[cfg(target_os = "linux")]
mod segment;
