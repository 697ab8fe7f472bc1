//! Results of calls, between threads and between processes, over every kind of link.

#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod arithmetic;
mod averages;
mod beyond;
mod counters;
mod counts;
mod determinism;
mod erased;
mod large;
mod operations;
mod own_schedules;
mod random_cases;
mod values;

use maypole_tests::{case, common};

spawn::rank_processes!(large, own_schedules, random_cases, values);
