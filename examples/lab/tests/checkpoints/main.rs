//! Checkpoints: written, damaged, resumed, read on other meshes.

use maypole_trainer_kernels::counting::CountingAllocator;

/// A test measures the memory that a rank holds while it reads.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[path = "../support/mutate.rs"]
mod mutate;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod damage;
mod parsers;
mod resharding;
mod saved;
