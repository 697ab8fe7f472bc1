//! Checkpoints: written, damaged, resumed, read on other meshes.

#[path = "../support/mutate.rs"]
mod mutate;
#[path = "../support/mod.rs"]
mod support;

mod damage;
mod parsers;
mod resharding;
mod resuming;
mod saved;
