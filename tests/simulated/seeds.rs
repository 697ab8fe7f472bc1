//! Runs a check for many seeds, on all cores.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

/// A number in the environment.
fn variable(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs `check` for `TEST_SEED` alone if that is set, else for `count` seeds, or `TEST_SEEDS`.
pub(crate) fn for_seeds(count: u64, check: impl Fn(u64) + Sync) {
    if let Some(seed) = variable("TEST_SEED") {
        return check(seed);
    }
    let count = variable("TEST_SEEDS").unwrap_or(count);
    let next = AtomicU64::new(0);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= count {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("again: TEST_SEED={seed} cargo test --test simulated");
            next.store(count, Ordering::Relaxed);
            resume_unwind(panic);
        }
    };
    scope(|threads| {
        let cores = available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| threads.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}
