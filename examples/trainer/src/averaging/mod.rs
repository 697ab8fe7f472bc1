//! Asynchronous updates and averaging: ranks that do not add their gradients after every step.
//!
//! Over a slow link the sum of gradients takes longer than the step. Then it pays to send less
//! often, to send to fewer ranks, or to continue before the sum has arrived. Each of these is
//! another algorithm than data parallelism: losses are near those of data parallelism, and not
//! equal.
//!
//! ```text
//!                  sent each step by a rank      what ranks have
//! data parallel    2 P (n-1)/n                   the same weights
//! local SGD        2 P (n-1)/n / H               their own weights, averaged every H steps
//! DiLoCo           2 P (n-1)/n / H               as local SGD, and an outer optimizer
//! gossip           P / H                         their own weights, near those of neighbours
//! stale sums       2 P (n-1)/n, beside steps     the same weights, from gradients of earlier steps
//! average once     2 P (n-1)/n / all steps       their own weights until the end: local SGD with
//!                                                an H of all steps
//! ```
//!
//! # What is sharded
//! The rows of a batch. Every rank has all weights, gradients and optimizer state; DiLoCo keeps two
//! numbers more for each parameter.
//!
//! # Which collective runs where
//! Local SGD: an all-reduce of the weights every H steps. DiLoCo: an all-reduce of the change of
//! the weights every H steps. Gossip: each rank sends its weights to the next rank of a ring every
//! H steps. Stale sums: an all-reduce of gradients that is started in one step and waited for some
//! steps later.
//!
//! # Cost
//! The table above, with `P` parameters on `n` ranks.
//!
//! # Source
//! Douillard et al., "DiLoCo" (2023); Lian et al., "Can Decentralized Algorithms Outperform
//! Centralized Algorithms?" (2017), for gossip; Ho et al., "More Effective Distributed ML via a
//! Stale Synchronous Parallel Parameter Server" (2013), for bounded staleness; Stich, "Local SGD
//! Converges Fast and Communicates Little" (2019).
//!
//! | file | what is in it |
//! |---|---|
//! | [`apart`] | the store of ranks that train apart, for any rule of averaging |
//! | [`local_sgd`] | weights averaged every H steps |
//! | [`diloco`] | an outer optimizer for the mean change of H steps |
//! | [`gossip`] | averages with one neighbour |
//! | [`stale`] | sums that arrive some steps late |

pub mod apart;
pub mod diloco;
pub mod gossip;
pub mod local_sgd;
pub mod stale;
