//! Unequal ranks: a faster rank gets more rows, and a faster stage gets more layers.
//!
//! Ranks wait for one another in every step, so a step takes as long as on the slowest rank. A rank
//! may be slow all the time (an older processor) or for some time (another program on its core).
//! Equal shares then leave all other ranks idle for a part of each step.
//!
//! ```text
//! rank 1 takes twice as long for a row      rank 0                        rank 1
//! equal rows      8 and 8                   ########........              ################
//! by speed       11 and 5                   ###########                   ##########.
//! ```
//!
//! # What is sharded
//! The rows of a batch over `dp` and `ep`, in whole rows, at least one for each rank; the layers
//! over `pp`, at least one for each stage.
//!
//! # Which collective runs where
//! After every N steps an all-gather over all ranks gives each rank's seconds for a row. All ranks
//! then compute the same division from the same numbers. A pipeline is divided once, before the
//! first step, by an all-gather of three numbers of each rank.
//!
//! # Cost
//! Those numbers. If a rank has `r` rows and takes `c` seconds for a row, a step takes the greatest
//! `r c` of all ranks. With `R` rows on `n` ranks, equal shares take `R / n` times the greatest
//! `c`, and shares by speed about `R / (1/c + 1/c' + ...)`. A rank with more rows also holds more
//! activations.
//!
//! A token's loss is divided by the tokens of the whole batch, on any rank. So gradients are summed
//! as with equal shares, and a rank with more rows counts more. A mean over the rows of each rank,
//! and then over ranks, is right only for equal shares: `--fault own-rows-mean` makes this mistake.
//!
//! Divisions depend on measured times, so two runs may divide rows differently. Their losses then
//! differ by rounding, as those of runs on different numbers of ranks do.
//!
//! # Source
//! The division is list scheduling: each row goes to the rank that would be done with it first
//! (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). For equal tasks it is optimal.
//! Batches by speed: Chen et al., "Semi-Dynamic Load Balancing: Efficient Distributed Learning in
//! Non-Dedicated Environments" (2020); layers by cost: Narayanan et al., "PipeDream" (2019).
//!
//! | file | contents |
//! |---|---|
//! | [`divide`] | the division of equal pieces over ranks of unequal cost |
//! | [`rows`] | rows by measured speed, decided anew every N steps |
//! | [`layers`] | layers of a pipeline by the measured cost of a stage |

pub mod divide;
pub mod layers;
pub mod rows;
