//! Expert parallelism: a feed-forward part of many experts, which are divided over ranks.
//!
//! Each token goes through the few experts that a router chooses for it, and experts are on
//! different ranks, so tokens travel to their experts and back.
//!
//! # What is sharded
//! Experts, and with them their gradients and optimizer state. The ranks of this axis also divide
//! the rows of a batch; everything but experts is the same on all of them.
//!
//! # Which collective runs where
//! An all-to-all of rows before the experts and one after them, forward and backward, a layer; once
//! a step an all-reduce of the gradients of all parameters that are not experts'.
//!
//! # Cost
//! Twice the rows that leave a rank and that come to it, times the width, a layer and micro-batch.
//! A step lasts as long as that of the rank with the busiest experts.
//!
//! # Source
//! Lepikhin et al., "GShard" (2020); Fedus et al., "Switch Transformers" (2021).
//!
//! | file | what is in it |
//! |---|---|
//! | [`router`] | the choice of experts for each token, capacity, the auxiliary loss |
//! | [`dispatch`] | tokens to their experts and back |
//! | [`layer`] | the layer: router, dispatch, experts, combination |
//! | [`placement`], [`rebalance`] | which rank has which experts; moving experts by measured load |

pub mod dispatch;
pub mod layer;
pub mod placement;
pub mod rebalance;
pub mod router;
