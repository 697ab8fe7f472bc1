//! Memory, and arithmetic on it. This crate contains no collective and no rank.

#![warn(missing_docs)]

// Here, in the lowest crate, because the crates above then are not compiled: it is the only error.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Maypole needs Linux on a 64-bit processor, such as x86-64 or AArch64");

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod memory;
mod mix;
pub mod packed;
mod types;

pub use cpu::{AverageParts, BuiltInReducer, CustomReducer, Reducer, divide, scale};
pub use half::{bf16, f16};
pub use memory::{Region, SharedRegion, View, ViewMut, string_copies_crawl};
pub use mix::mix;
pub use types::{BinaryOp, DataType, Scalar};
