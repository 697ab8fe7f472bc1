//! Ranks die, leave, stop, come late or make other calls: the others get the right error soon, and
//! can go on.

#[path = "../common/spawn.rs"]
mod spawn;

mod admission;
mod calls;
mod collectives;
mod deaths;
mod mismatches;
mod shrinking;
mod waiting_elsewhere;

spawn::rank_processes!(admission, collectives, deaths, mismatches, shrinking, waiting_elsewhere);
