//! Messages between two ranks and groups of them, whether they arrive or fail.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/spawn.rs"]
mod spawn;

mod blocking;
mod exchange;
mod faults;
mod started;

spawn::rank_processes!(blocking, exchange, faults, started);
