//! The trainer's layers on NVIDIA GPUs.
//!
//! A model calls a [`Device`](maypole_trainer::tensor::device::Device) for each layer. This crate has one
//! that runs the kernels of `maypole-trainer-kernels`; the trainer names none of it.
//!
//! | file | contents |
//! |---|---|
//! | [`device`] | the layers on a GPU, one call at a time |
//! | [`choice`] | which rank computes on which device |
#![forbid(unsafe_code)]

pub mod choice;
pub mod device;
