//! Tensor parallelism: every matrix of a layer is divided, and each rank multiplies by its part.
//!
//! # What is sharded
//! The matrices of a block, by outputs or by inputs ([`region`]); whole heads of attention; the
//! rows of the vocabulary's two tables ([`vocab`]); optionally the tokens between the divided
//! layers ([`sequence`]).
//!
//! # Which collective runs where
//! Forward one all-reduce at the end of each divided region, backward one at its start: four a
//! block and step. With tokens divided, each is a reduce-scatter and an all-gather instead.
//!
//! # Cost
//! With `p` ranks and `n` tokens of width `d`: `4 * 2 (p-1)/p * n d` numbers a rank, block and
//! step, none of it behind computation. So the ranks of this axis belong on one host.
//!
//! # Source
//! Shoeybi et al., "Megatron-LM" (2019); Korthikanti et al., "Reducing Activation Recomputation in
//! Large Transformer Models" (2022).

pub mod region;
pub mod sequence;
pub mod vocab;
