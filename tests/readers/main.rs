//! What reads files and packed programs bears arbitrary bytes.

mod files;
#[path = "../common/fuzz.rs"]
mod fuzz;
mod packed;
