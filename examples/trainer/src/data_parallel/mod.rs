//! Data parallelism: every rank trains the whole model on its own rows of the batch.
//!
//! The gradient of a batch is the sum of the gradients of its rows. So ranks that have the same
//! parameters compute gradients of different rows and add them. The forms differ in what a rank
//! keeps between steps: everything (replicated), all but the optimizer's state (ZeRO-1), also
//! gradients in parts (ZeRO-2), or weights in parts too (FSDP, which is ZeRO-3).
//!
//! ```text
//!               rank 0    rank 1                      a rank keeps between steps
//! rows          0..4      4..8       replicated       weights      gradients      optimizer
//! forward       whole     whole      ZeRO-1           weights      gradients      optimizer / n
//! backward      whole     whole      ZeRO-2           weights      gradients / n  optimizer / n
//! gradients     ---- summed ----     FSDP             weights / n  gradients / n  optimizer / n
//! update        the same
//! ```
//!
//! # What is sharded
//! The rows of a batch, always. The optimizer's state, gradients and weights, by the form.
//!
//! # Which collective runs where
//! Replicated: an all-reduce of each bucket of gradients, during the backward pass. ZeRO-1: a
//! reduce-scatter of gradients, and after the update an all-gather of weights. ZeRO-2: a
//! reduce-scatter of each unit's gradients in the backward pass of each micro-batch, and one
//! all-gather of weights a step. FSDP: an all-gather of each unit's weights before its forward pass
//! and before its backward pass, and a reduce-scatter of its gradients. Forms that average weights
//! instead are in `maypole_lab::averaging`.
//!
//! # Cost
//! With `P` parameters, `n` ranks and `m` micro-batches, each rank sends in one step `2 P (n-1)/n`
//! numbers (replicated, ZeRO-1), `(m+1) P (n-1)/n` (ZeRO-2) or `3 m P (n-1)/n` (FSDP).
//! `maypole_lab::memory` has the table of bytes that a rank keeps.
//!
//! # Source
//! Li et al., "PyTorch Distributed" (2020), for buckets; Rajbhandari et al., "ZeRO" (2020); Zhao et
//! al., "PyTorch FSDP" (2023).
//!
//! | file | contents |
//! |---|---|
//! | [`replicated`] | buckets of gradients, whose all-reduces overlap with the backward pass |
//! | [`gathered`] | the weights of ZeRO-1 and ZeRO-2, in registered buffers |
//! | [`shards`] | the equal parts of a flat buffer that ranks own |
//! | [`zero`], [`fsdp`] | the optimizer, gradients, weights in parts |
//! | [`summed`] | gradients that are first summed over another axis |
//! | [`sharding`] | the choice of a form by name |

pub mod fsdp;
pub mod gathered;
pub mod replicated;
pub mod sharding;
pub mod shards;
pub mod summed;
pub mod zero;
