//! The worlds of random programs.

use crate::common::SeededRng;
use maypole_testing::SimulatedWorld;
pub(crate) use maypole_tests::program::{Failure, Program};
use std::time::Duration;

/// Draws a world: its hosts, and the buffer size and the longest latency of its links.
pub(crate) fn draw_world(seed: u64, ranks: usize, rng: &mut SeededRng) -> SimulatedWorld {
    let hosts: Vec<usize> = match rng.below(4) {
        0 => (0..ranks).map(|_| rng.below(3)).collect(),
        _ => (0..ranks).collect(),
    };
    let capacity = [7, 64, 1000, 4096, 1 << 16][rng.below(5)];
    let delay = [0, 20, 200, 5000][rng.below(4)];
    SimulatedWorld::new(seed)
        .hosts(&hosts)
        .link_capacity(capacity)
        .longest_delay(Duration::from_micros(delay))
}
