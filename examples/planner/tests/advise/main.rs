//! The planner: bytes, seconds, what it finds and what it refuses.

mod input;
mod memory;
mod order;
mod price;
mod published;
mod search;
