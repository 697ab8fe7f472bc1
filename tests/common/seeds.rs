//! Runs a check for many seeds, on all cores.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};

/// A number in the environment.
fn variable(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// True where the environment variable `TESTS` is `all`.
fn runs_all() -> bool {
    std::env::var_os("TESTS").is_some_and(|which| which == "all")
}

/// The name by which cargo starts this test program.
fn program() -> String {
    let file = std::env::current_exe().expect("a test program has a path");
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.unwrap_or_default();
    // Cargo appends a hash.
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}

/// Runs `check` for `TEST_SEED` alone if that is set, else for `TEST_SEEDS` seeds. Else for a quarter of
/// `count` seeds, another one in another commit, and for all of them where `TESTS=all`.
pub(crate) fn for_seeds(count: u64, check: impl Fn(u64) + Sync) {
    let count = if runs_all() { count } else { count / 4 };
    for_seeds_at_once(available_parallelism().map_or(1, usize::from), count, check);
}

/// [`for_seeds`] on `workers` threads: more than there are cores if a check mostly waits. No seed
/// begins once `TEST_SECONDS` have passed, if that is set. Returns the number of seeds that were
/// checked.
pub(crate) fn for_seeds_at_once(workers: usize, count: u64, check: impl Fn(u64) + Sync) -> u64 {
    if let Some(seed) = variable("TEST_SEED") {
        check(seed);
        return 1;
    }
    // Commits one after the other have other seeds, as other cases of tests (`skip.rs`).
    let turn = variable("TEST_TURN").filter(|_| variable("TEST_SEEDS").is_none() && !runs_all());
    let turn = turn.unwrap_or(0);
    let first = variable("TEST_FIRST_SEED").unwrap_or(turn % 4 * count);
    let count = variable("TEST_SEEDS").unwrap_or(count);
    let limit = variable("TEST_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    let next = AtomicU64::new(first);
    let checked = AtomicU64::new(0);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count || limit.is_some_and(|limit| start.elapsed() > limit) {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("again: TEST_SEED={seed} cargo test --test {}", program());
            next.store(first + count, Ordering::Relaxed);
            resume_unwind(panic);
        }
        checked.fetch_add(1, Ordering::Relaxed);
    };
    scope(|threads| {
        let workers: Vec<_> = (0..workers).map(|_| threads.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    checked.into_inner()
}
