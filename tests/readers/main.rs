//! Readers of files and packed programs accept arbitrary bytes without a panic.

mod files;
#[path = "../common/fuzz.rs"]
mod fuzz;
mod packed;
