//! The planner: bytes, seconds, results and refusals.

mod input;
mod memory;
mod order;
mod price;
mod published;
mod search;
