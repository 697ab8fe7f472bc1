//! The trainer's unsafe code: layers on a GPU, and an allocator that counts.

pub mod counting;
pub mod layers;
