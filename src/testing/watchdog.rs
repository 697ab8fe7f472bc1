//! Detects a rank that keeps its turn.

use crate::network::SimulatedNetwork;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long a turn may last before a sentence is printed.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// Prints a sentence when a turn lasts long. Returns once the other end of `over` is dropped.
pub(crate) fn watch(network: &SimulatedNetwork, seed: u64, over: &Receiver<()>) {
    let mut turns = network.report().turns;
    while over.recv_timeout(LONGEST_TURN) == Err(RecvTimeoutError::Timeout) {
        let now = network.report().turns;
        if let Some(rank) = network.running_rank().filter(|_| now == turns) {
            // A closed stream must not end the simulation.
            let _ = writeln!(
                io::stderr(),
                "maypole: in the simulated world of seed {seed}, rank {rank} has kept its turn for \
                 {} s; a rank may wait for others only by calls of its communicator",
                LONGEST_TURN.as_secs()
            );
        }
        turns = now;
    }
}
