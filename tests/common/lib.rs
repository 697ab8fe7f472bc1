//! Shared by several test programs: random numbers, a naive executor, and random calls and programs with their
//! results for every type of elements, which take long to compile. The other files of this folder
//! are modules of the programs that name them.

#[path = "case.rs"]
pub mod case;
#[path = "mod.rs"]
pub mod common;
pub mod forked;
pub mod program;
