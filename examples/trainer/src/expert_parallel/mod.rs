//! Expert parallelism: a feed-forward part of many experts, which are divided over ranks.
//!
//! A router chooses a few experts for each token. Experts are on different ranks, so tokens are
//! sent to their experts, and the results are sent back.
//!
//! # What is sharded
//! Experts, and with them their gradients and optimizer state. The ranks of this axis also divide
//! the rows of a batch; everything but experts is the same on all of them.
//!
//! # Which collective runs where
//! In each layer an all-to-all of rows before the experts and one after them, forward and backward.
//! Once a step an all-reduce of the gradients of all parameters but those of experts.
//!
//! # Cost
//! In each layer and micro-batch a rank sends twice as many numbers as its sent and its received rows
//! have together. A step lasts as long as that of the rank with the busiest experts.
//!
//! # Source
//! Lepikhin et al., "GShard" (2020); Fedus et al., "Switch Transformers" (2021).
//!
//! | file | contents |
//! |---|---|
//! | [`router`] | the choice of experts for each token, capacity, the auxiliary loss |
//! | [`dispatch`] | tokens are sent to their experts and back |
//! | [`layer`] | the layer: router, dispatch, experts, combination |

pub mod dispatch;
pub mod layer;
pub mod router;
