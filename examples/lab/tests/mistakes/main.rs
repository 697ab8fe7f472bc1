//! Mistakes made on purpose: the comparison with one process finds each.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod data_parallel;
mod listed;
