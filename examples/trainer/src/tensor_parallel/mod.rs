//! Tensor parallelism: every matrix of a layer is divided, and each rank multiplies by its part.
//!
//! # What is sharded
//! The matrices of a block: the first of each pair by outputs ([`mod@column`]), the second by
//! inputs ([`row`]), so that one all-reduce joins them. Whole heads of attention. The rows of the
//! vocabulary's two tables ([`vocab`]). Optionally the tokens between the divided layers
//! ([`sequence`]).
//!
//! # Which collective runs where
//! Forward one all-reduce at the end of each divided region, backward one at its start: four a
//! block and step. With tokens divided, each is a reduce-scatter and an all-gather instead.
//!
//! # Cost
//! With `p` ranks and `n` tokens of width `d`: `4 * 2 (p-1)/p * n d` numbers a rank, block and
//! step. None of it overlaps with compute, so the ranks of this axis belong on one host.
//!
//! # Source
//! Shoeybi et al., "Megatron-LM" (2019); Korthikanti et al., "Reducing Activation Recomputation in
//! Large Transformer Models" (2022).
//!
//! | file | contents |
//! |---|---|
//! | [`region`] | the two ends of a divided part of the model, and their all-reduces |
//! | [`mod@column`], [`row`] | the two ways to divide a linear layer, with pictures and shapes |
//! | [`sequence`] | tokens divided between regions |
//! | [`vocab`] | the embedding, the head and the loss over a divided vocabulary |

pub mod column;
pub mod region;
pub mod row;
pub mod sequence;
pub mod vocab;
