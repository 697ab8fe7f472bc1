//! The algorithms: pure functions from (collective, world, rank) to a [`Schedule`].
//!
//! One file an idea. Each opens with its picture for four ranks, printed by `maypole draw`, then
//! its cost, when to choose it, and its source. Costs are in seconds: `a` (alpha) is the latency of
//! a message, `b` (beta) the time of a byte and `g` (gamma) the time to reduce a byte. `S` is the
//! number of bytes of the whole, `n` the number of ranks, `k` the number of windows, and `lg` the
//! logarithm to base two.
//!
//! | algorithm | collectives |
//! |---|---|
//! | [`ring`] | broadcast, reduce (chain), all-reduce, all-gather, reduce-scatter; [scans](scan) |
//! | [`tree`] | broadcast, reduce, all-reduce |
//! | [`double_tree`] | broadcast, reduce, all-reduce |
//! | [`binomial`] | broadcast, reduce, gather, scatter |
//! | [`doubling`] | all-reduce, all-gather; [scans](scan) |
//! | [`halving`] | all-reduce, reduce-scatter |
//! | [`bruck`] | all-gather, all-to-all |
//! | [`scatter_gather`] | broadcast, reduce |
//! | [`pairwise`] | all-to-all, reduce-scatter |
//! | [`direct`] | all-reduce in one or two shots; all-gather, reduce-scatter, all-to-all |
//! | [`linear`] | broadcast, reduce, gather, scatter by the root itself |
//! | [`dissemination`] | barrier |
//! | [`hierarchical`] | one algorithm within hosts, one across: all but all-to-all and scans |
//! | [`reordered`] | any algorithm with the ranks in another order |
//!
//! Where results are combined, the order is part of the algorithm: the contributions of the ranks
//! are combined in the order of the steps, and [`verify`](crate::schedule::verify) derives whether
//! that is the order of the ranks.
//!
//! [`Schedule`]: crate::schedule::Schedule

pub mod binomial;
pub mod bruck;
mod compose;
pub mod direct;
mod dispatch;
pub mod dissemination;
pub mod double_tree;
pub mod doubling;
pub mod halving;
pub mod hierarchical;
mod in_order_tree;
pub mod linear;
pub mod pairwise;
pub mod power_of_two;
pub mod reordered;
pub mod ring;
pub mod scan;
pub mod scatter_gather;
mod steps;
mod table;
pub mod tree;

pub use table::{Algorithm, UnknownAlgorithm};
