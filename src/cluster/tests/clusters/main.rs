//! Computations on clusters: schedules along their links are proved, and their times are predicted.

mod predictions;
mod proofs;
mod rings;
#[path = "../../../../tests/common/samples.rs"]
mod samples;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
