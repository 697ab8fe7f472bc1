//! Messages between two ranks and groups of them, whether they arrive or fail.

#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod blocking;
mod faults;
mod started;

use maypole_tests::common;

spawn::rank_processes!(faults, started);
