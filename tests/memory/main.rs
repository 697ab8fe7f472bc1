//! Memory that communicators allocate and keep, measured by a counting allocator. It counts for the
//! whole process, so this is a program of its own.

#[path = "../common/counting.rs"]
mod counting;
#[path = "../common/spawn.rs"]
mod spawn;

mod growth;
mod small_path;

spawn::rank_processes!(growth, small_path);
