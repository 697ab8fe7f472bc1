//! Unequal ranks: a faster rank gets more rows, and a faster stage gets more layers.
//!
//! Ranks wait for one another in every step, so the slowest rank decides how long the step takes. A
//! rank may be slow for good (an older processor) or for a while (another program on its core).
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
//! After every N steps each rank tells the seconds that it took for a row, in an all-gather of one
//! number over all ranks. All ranks then compute the same division from the same numbers. A
//! pipeline is divided once, before the first step, from three numbers of each rank.
//!
//! # Cost
//! Those numbers. With `r` rows and `c` seconds for a row, a step takes the greatest `r c` of all
//! ranks; equal shares take `R / n` times the greatest `c`, and shares by speed about
//! `R / (1/c + 1/c' + ...)`. A rank with more rows also holds more activations.
//!
//! A token's loss is divided by the tokens of the whole batch, wherever the token is. So gradients
//! are summed as ever, and a rank with more rows counts more. To average over the rows of each rank,
//! and then over ranks, is right for equal shares alone: `--fault own-rows-mean` makes this mistake.
//!
//! Divisions follow the clock, so two runs may divide differently. Losses then differ by rounding,
//! as between other numbers of ranks.
//!
//! # Source
//! The division is list scheduling of equal tasks on uniform machines, which is optimal: each row
//! goes to the rank that would be done with it first (Graham, "Bounds on Multiprocessing Timing
//! Anomalies", 1969). Batches by speed: Chen et al., "Semi-Dynamic Load Balancing: Efficient
//! Distributed Learning in Non-Dedicated Environments" (2020); layers by cost: Narayanan et al.,
//! "PipeDream" (2019).
//!
//! | file | what is in it |
//! |---|---|
//! | [`divide`] | the division of equal pieces over ranks of unequal cost |
//! | [`rows`] | rows by measured speed, decided anew every N steps |
//! | [`layers`] | layers of a pipeline by the measured cost of a stage |

pub mod divide;
pub mod layers;
pub mod rows;
