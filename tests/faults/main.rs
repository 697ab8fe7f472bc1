//! Ranks die, leave, stop, are late or make other calls: the others get the correct error soon, and
//! can continue.

#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod calls;
mod collectives;
mod deaths;
mod groups;
mod matrix;
mod mismatches;
mod report;
mod shrinking;
mod status;
mod waiting_elsewhere;

spawn::rank_processes!(deaths, groups, matrix, mismatches, shrinking, status, waiting_elsewhere);
