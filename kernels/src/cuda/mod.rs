//! Arithmetic on the memory of NVIDIA's GPUs, by the kernels of `kernels/cuda`.
//!
//! A program needs only the driver, which [`driver`] loads when the program first uses a GPU.

mod driver;
mod map;
mod modules;

pub use driver::{CudaError, Driver, Unavailable, capture_of, driver, uuid_of};
pub use map::{MapKernels, MapOp};
pub use modules::{MODULES, Modules, PROGRAM_HEADER, WALK_THREADS, WalkKernels, walk_module};
