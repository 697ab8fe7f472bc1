//! Checkpoints: written, damaged, resumed, read on other meshes.

use maypole_kernels::memory::counting::CountingAllocator;

/// Reading is to hold little more than what a rank updates.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[path = "../support/mutate.rs"]
mod mutate;
#[path = "../support/mod.rs"]
mod support;

mod damage;
mod parsers;
mod resharding;
mod resuming;
mod saved;
