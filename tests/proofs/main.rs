//! Schedules keep their promises: proved for every algorithm and topology, in every order that the
//! law allows, on any hosts, and once they are lowered.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/samples.rs"]
mod samples;
#[path = "../common/skip.rs"]
mod skip;

mod algorithms;
mod hierarchies;
mod lowering;
mod mutants;
mod orders;
mod symmetries;
mod topologies;
