//! Random programs in simulated worlds: thousands of seeds, each with delays, split messages and,
//! in most of them, a fault. Each call returns, with the right result or the right error.
//!
//! A seed that fails prints itself; `TEST_SEED=N cargo test --workspace --test simulated` runs that seed alone.
//! `TEST_SEEDS` is the number of seeds of each test.

mod faults;
mod hangs;
mod program;
mod replay;
#[path = "../../../../tests/common/seeds.rs"]
mod seeds;

use maypole_tests::common;
