//! Mistakes made on purpose: the comparison with one process finds each.

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod against;
mod data_parallel;
mod listed;
