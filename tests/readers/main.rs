//! Readers of files and packed programs accept arbitrary bytes without a panic.

mod files;
mod fuzz;
mod packed;
