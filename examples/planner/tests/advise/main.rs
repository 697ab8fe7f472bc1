//! The planner: bytes, seconds, results and refusals.

mod input;
mod machine;
mod memory;
mod order;
mod price;
mod published;
mod search;
