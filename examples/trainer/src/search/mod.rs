//! The search for good hyper-parameters: many short trainings side by side, of which few go on.
//!
//! What it does: draws trials from a space at random, trains all of them for a while (a *rung*),
//! keeps the best part of them for the next, longer rung, and so on: successive halving. A trial
//! goes on where it stopped, so all rungs together train what random search would, but most of it
//! goes to trials that are worth it.
//!
//! ```text
//! keep one of 4, 16 trials        rung 0        rung 1                rung 2
//! tokens of a trial               up to t       up to 4 t             up to 16 t
//! trials                          16            4                     1
//! ```
//!
//! What is sharded: trials over groups of ranks, `ranks-per-trial` each. Which collective runs where:
//! the world is split once into groups; between rungs every rank broadcasts what its trials gave,
//! and a trial that another group goes on with is broadcast as a whole: its weights and both
//! averages, 12 bytes a parameter. Within a rung the groups do not talk.
//!
//! The settings of a trial are functions of the seed and of its number; what it gives is a function
//! of its settings. Which group trains it does not matter. So the same trial wins on any number of
//! groups. That is why rungs are in step: asynchronous halving (ASHA) lets a trial go on as soon as
//! it is among the best of those that are done, so a rank never waits, and who wins depends on which
//! machine was faster.
//!
//! A trial whose loss is no number any more, or has doubled, has *diverged*; one that panics has
//! *crashed*; settings that make no model are *refused*. Each is a row like the others, and is not
//! kept.
//!
//! | file | what is in it |
//! |---|---|
//! | [`space`] | the space, read from TOML, and the settings of a trial |
//! | [`halving`] | rungs, who goes on, and which group trains what |
//! | [`trial`] | one training, which can be stopped, moved and continued |
//! | [`run`] | the search on all ranks; its journal, from which it resumes |
//! | [`table`], [`picture`] | the result as text, CSV and SVG |
//!
//! Sources: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
//! Optimization" (2015); Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020),
//! for ASHA; Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (2012).

pub mod halving;
pub mod picture;
pub mod run;
pub mod space;
pub mod table;
pub mod trial;
