//! What the trainer needs unsafe code for.

pub mod counting;
pub mod layers;
