//! The picture of a network in which all threads are blocked.

use super::link::LinkDirection;
use super::turns::{ThreadCondition, ThreadState, TurnTable};
use std::fmt::Write;

#[derive(Clone, Copy, Debug)]
pub(super) enum HangReason {
    /// All threads wait without a deadline.
    NothingCanHappen,
    /// The run has taken more turns than were allowed.
    TooManyTurns,
}

/// Describes each thread's wait and the bytes on the links.
pub(super) fn picture(
    reason: HangReason,
    seed: u64,
    table: &TurnTable,
    directions: &[LinkDirection],
) -> String {
    let why = match reason {
        HangReason::NothingCanHappen => "all threads wait, and none has a deadline",
        HangReason::TooManyTurns => "the run has taken all the turns that it may take",
    };
    let mut text =
        format!("the simulated world of seed {seed} hangs at turn {}: {why}\n", table.turns);
    for (id, thread) in table.threads.iter().enumerate() {
        let rank = thread.rank;
        let _ = writeln!(text, "  thread {id}, of rank {rank}, {}", describe(thread, table.clock));
    }
    for LinkDirection { from, to, held, .. } in directions.iter().filter(|it| it.held > 0) {
        let _ = writeln!(text, "  {held} bytes from rank {from} were not received by rank {to}");
    }
    text
}

fn describe(thread: &ThreadState, now: u64) -> String {
    match thread.condition {
        ThreadCondition::Ready => "runs".to_owned(),
        ThreadCondition::Ended => "has ended".to_owned(),
        ThreadCondition::Waiting { since, .. } => format!("has waited {} us", now - since),
    }
}
