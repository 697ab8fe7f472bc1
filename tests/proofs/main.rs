//! Schedules implement their collectives: proved for every algorithm, in every order that the law
//! allows, on any hosts, and once they are lowered.

#[path = "../common/skip.rs"]
mod skip;

mod algorithms;
mod hierarchies;
mod lowering;
mod mutants;
mod orders;
mod symmetries;

use maypole_tests::common;
