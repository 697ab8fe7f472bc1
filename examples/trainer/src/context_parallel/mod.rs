//! Context parallelism: the positions of a row are divided over ranks.
//!
//! All layers but attention compute each position by itself. Attention needs the keys and values of
//! all earlier positions, which other ranks have. Two algorithms exchange them: [`ring`] shifts blocks
//! of keys and values from rank to rank; [`ulysses`] exchanges positions for heads by all-to-alls.
//!
//! # What is sharded
//! Positions of every row, and so all activations. Parameters are the same on every rank, and
//! their gradients are all-reduced like those of data parallelism.
//!
//! # Which collective runs where
//! Ring: `p - 1` shifts in a ring forward and `2p - 1` backward, a layer. Ulysses: two all-to-alls
//! forward and two backward, a layer.
//!
//! # Cost
//! With `n` numbers of activations on a rank (tokens times width) and `p` ranks, a layer sends `2n
//! (3p - 2)` numbers (ring) or `8n (p-1)/p` (Ulysses). In this trainer neither overlaps with compute.
//!
//! # Source
//! Liu et al., "Ring Attention with Blockwise Transformers" (2023); Jacobs et al., "DeepSpeed
//! Ulysses" (2023). [`zigzag`] divides positions so that causal work is equal on all ranks.

pub mod ring;
pub mod ulysses;
pub mod zigzag;
