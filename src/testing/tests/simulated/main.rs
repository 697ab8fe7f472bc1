//! Random programs in simulated worlds: thousands of seeds, each with delays, split messages and,
//! in most of them, a fault. Each call returns, with the right result or the right error.
//!
//! A seed that fails prints itself; `TEST_SEED=N cargo test --workspace --test simulated` runs that seed alone.
//! `TEST_SEEDS` is the number of seeds of each test.

#[path = "../../../../tests/common/case.rs"]
mod case;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod faults;
mod hangs;
mod program;
mod replay;
#[path = "../../../../tests/common/seeds.rs"]
mod seeds;
