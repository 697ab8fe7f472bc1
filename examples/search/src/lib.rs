//! The search for good hyper-parameters: many short trainings run concurrently, and few continue.
//!
//! What it does: draws trials from a space at random, trains all of them for a while (a *rung*),
//! keeps the best part of them for the next, longer rung, and so on: successive halving. A promoted
//! trial continues from its last step. So each rung costs about as many tokens as the first: below 16,
//! 12 and 12 t, where random search would take 256 t for the same trials.
//!
//! ```text
//! keep one of 4, 16 trials        rung 0        rung 1                rung 2
//! tokens of a trial               up to t       up to 4 t             up to 16 t
//! trials                          16            4                     1
//! ```
//!
//! What is sharded: trials over groups of ranks, `ranks-per-trial` each. Which collective runs where:
//! the world is split once into groups; after a rung the first rank of each group broadcasts the
//! outcomes of its trials. For a trial that another group continues, a broadcast of its weights and both
//! averages, 12 bytes a parameter. Within a rung there is no collective between groups.
//!
//! The settings of a trial are functions of the seed and of its number; its outcome is a function
//! of its settings, and not of the group that trains it. So the same trial wins on any number of
//! groups. For this a barrier separates two rungs. Asynchronous halving (ASHA) promotes a trial as
//! soon as it is among the best of the completed ones: no rank waits, but the winner depends on the
//! speed of the machines.
//!
//! A trial whose loss is not finite, or has doubled, has *diverged*; one that panics has
//! *crashed*; settings that make no model are *refused*. Each is a row like the others, and is not
//! kept.
//!
//! | file | contents |
//! |---|---|
//! | [`space`] | the space, read from TOML, and the settings of a trial |
//! | [`halving`] | rungs: which trials are promoted, and which group trains each |
//! | [`trial`] | one training, which can be stopped, moved and continued |
//! | [`run`] | the search on all ranks; its journal, from which it resumes |
//! | [`table`], [`picture`] | the result as text, CSV and SVG |
//!
//! Sources: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
//! Optimization" (2015); Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020),
//! for ASHA; Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (2012).
#![forbid(unsafe_code)]

pub mod halving;
pub mod picture;
pub mod run;
pub mod space;
pub mod table;
pub mod trial;
