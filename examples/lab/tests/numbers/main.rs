//! Derivatives, norms, precision, and the bytes of theory.

use maypole_trainer_kernels::counting::CountingAllocator;

/// The tour compares the memory that ranks hold.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod derivatives;
mod memory;
mod norms;
mod precision;
mod precision_meshes;
mod theory;
mod tour;
