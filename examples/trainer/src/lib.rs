//! A small GPT or Llama, trained over every axis of parallelism, one folder an axis and one file an idea.
//!
//! # What is here to be learnt
//!
//! Training on many processors divides a model, its data and its optimizer in a handful of ways.
//! Each way needs collectives. The module page of every axis lists the sharded tensors, the
//! collectives, and their cost. Every axis is compared with the same training in a single process,
//! number by number.
//!
//! # In reading order
//!
//! A folder names only folders above it in this table; `tests/architecture.rs` of the repository
//! holds it to that.
//!
//! | folder | contents |
//! |---|---|
//! | [`tensor`] | numbers, matrix products, layers forward and backward, devices |
//! | [`ranks`] | groups of ranks, the mesh, bytes sent, timelines |
//! | [`tensor_parallel`] | matrices, tokens and the vocabulary divided |
//! | [`model`] | the GPT and the Llama, the place of each parameter in one flat buffer, stores of weights |
//! | [`data_parallel`] | rows divided: replicas, ZeRO-1, ZeRO-2, FSDP |
//! | [`context_parallel`] | positions divided: ring attention, Ulysses, zig-zag |
//! | [`expert_parallel`] | experts divided: router, dispatch, layer, placement |
//! | [`pipeline_parallel`] | layers divided: plans as data, their execution, replay and drawing |
//! | [`train`] | a step, a rank of any mesh, optimizer, text, checkpoints |
//!
//! Training in one process is the reference for every mesh. One process itself is compared with
//! PyTorch in the crate of the command: its gradients by `tests/pytorch`, its losses by
//! `pytorch/compare.py`.
#![deny(unsafe_code)]

pub mod context_parallel;
pub mod data_parallel;
pub mod expert_parallel;
pub mod model;
pub mod pipeline_parallel;
pub mod ranks;
pub mod tensor;
pub mod tensor_parallel;
pub mod train;
