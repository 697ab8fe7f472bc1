//! Pipeline parallelism: the layers are divided into stages, and micro-batches pass through the
//! stages.
//!
//! A schedule is data: [`plan`] makes, for each rank, the list of its forward and backward passes.
//! [`execute`] runs that list, [`trace`] replays it with a cost for each pass.
//!
//! # What is sharded
//! Layers, and with them parameters, gradients and optimizer state. The first stage has the
//! embedding, the last one the head.
//!
//! # Which collective runs where
//! None. For each micro-batch and boundary between stages, one message of activations to the next
//! stage and one of gradients to the previous ([`links`]).
//!
//! # Cost
//! Those messages, and the bubble: the time in which a stage waits for others. With
//! `p` equal stages and `m` micro-batches it is `(p-1)/(m+p-1)` of the time for GPipe and 1F1B.
//!
//! # Source
//! Huang et al., "GPipe" (2019); Narayanan et al., "PipeDream-2BW" (2021) for 1F1B, and "Efficient
//! Large-Scale Language Model Training on GPU Clusters" (2021) for interleaved stages.

pub mod execute;
pub mod links;
pub mod plan;
pub mod trace;
