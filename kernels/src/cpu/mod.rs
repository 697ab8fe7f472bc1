//! Arithmetic on the CPU: reductions of any number of buffers, and scaling of one.
//!
//! Elements combine from left to right, and every binary step rounds on its own: no fused
//! multiply-add, no tree, no wider intermediate sum. So the same sources in the same order give
//! the same bits on every machine and with every instruction set. (A NaN stays a NaN; its payload
//! bits are not promised.)
//!
//! In reading order; each file uses only those above it:
//!
//! | file | content |
//! |---|---|
//! | `operations` | the interface of an instruction set (`Register`, `Combine`); types of functions |
//! | `alignment` | the start of a loop, so that speed does not depend on the buffer's address |
//! | `loops` | loops over whole buffers, written once for every register |
//! | `portable` | the arithmetic in plain Rust: the reference for all instruction sets |
//! | `partial` | loads and stores of less than a register |
//! | `intrinsics` | macros for methods of one intrinsic each |
//! | `vector` | the same arithmetic, written once on vector operations |
//! | `x86`, `neon` | these vector operations in AVX2, AVX-512 and NEON |
//! | `instruction_set` | which instruction sets this machine has, and the functions of each |
//! | `built_in` | reductions by an operation of this crate |
//! | `custom` | reductions by a function of the user |
//! | `reducer` | reductions by either |
//! | `scaling` | multiplication and division of all elements by one number |
//! | `average` | exact averages of integers |

mod alignment;
mod average;
mod built_in;
mod custom;
mod instruction_set;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod intrinsics;
mod loops;
#[cfg(target_arch = "aarch64")]
mod neon;
mod operations;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod partial;
mod portable;
mod reducer;
mod scaling;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use average::AverageParts;
pub use built_in::BuiltInReducer;
pub use custom::CustomReducer;
pub use reducer::Reducer;
pub use scaling::{divide, scale};
