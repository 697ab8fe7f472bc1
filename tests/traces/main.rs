//! Traces of real runs show what happened.

#[path = "../common/spawn.rs"]
mod spawn;

mod admitted;
mod broken;
mod file;
mod messages;
mod recorded;

spawn::rank_processes!(admitted, broken, messages, recorded);
