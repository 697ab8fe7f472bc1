//! Ranks die, leave, stop, come late or make other calls: the others get the right error soon, and
//! can go on.

#[path = "../common/spawn.rs"]
mod spawn;

mod admission;
mod calls;
mod collectives;
mod deaths;
mod matrix;
mod mismatches;
mod report;
mod shrinking;
mod status;
mod waiting_elsewhere;

spawn::rank_processes!(
    admission,
    collectives,
    deaths,
    matrix,
    mismatches,
    shrinking,
    status,
    waiting_elsewhere
);
