//! Memory, and arithmetic on it. This crate contains no collective and no rank.

#![warn(missing_docs)]

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
