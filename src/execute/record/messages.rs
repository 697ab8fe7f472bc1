//! Messages between two ranks, as they are recorded and shown.

use super::{EventKind, RecordedEvent, Recorder, message, numbers, slice};
use crate::execute::Awaited;
use crate::schedule::trace::{ArrowEnd, Fact, Slice, SliceKind, Trace, digit};

/// A message that one of its two ranks has completed.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord {
    /// The rank that sends it.
    pub from: usize,
    /// The rank that receives it.
    pub to: usize,
    /// True if its receiver records it, false if its sender does.
    pub received: bool,
    /// Its length.
    pub bytes: usize,
    /// Its tag.
    pub tag: u32,
    /// How many messages went from its sender to its receiver before it.
    pub number: u64,
    /// The index of its step in the schedule of its batch.
    pub step: usize,
}

/// A batch of messages: all that one call posted together.
#[derive(Clone, Debug)]
pub(super) struct BatchRecord {
    /// The batch in words.
    pub(super) operation: String,
    /// The number of messages.
    pub(super) messages: usize,
    /// Bytes of all of them.
    pub(super) bytes: usize,
    /// True if every event of the batch was recorded.
    pub(super) whole: bool,
}

/// Takes the place of a call's sequence number. Batches have no number, because messages are
/// numbered by pair.
const UNNUMBERED: u64 = u64::MAX;

impl Recorder {
    /// Records a batch of `messages` messages of `bytes` bytes in all, which `run` executes. `peer`
    /// finds the rank that an error of `run` names, if it names one.
    ///
    /// # Errors
    /// Those of `run`.
    #[cold]
    #[inline(never)]
    pub fn batch<E>(
        &mut self,
        operation: String,
        (messages, bytes): (usize, usize),
        run: impl FnOnce(&mut Self) -> Result<(), E>,
        peer: impl FnOnce(&E) -> Option<usize>,
    ) -> Result<(), E> {
        let batch = |whole| EventKind::Batch(BatchRecord { operation, messages, bytes, whole });
        self.record(run, peer, batch)
    }

    /// Called before bytes are moved: the time until now was a wait.
    pub fn about_to_move(&mut self) {
        self.since = self.now();
    }

    /// Records a message that the bytes moved since [`about_to_move`](Self::about_to_move) have
    /// completed.
    pub fn message(&mut self, message: MessageRecord) {
        let MessageRecord { from, to, received, .. } = message;
        self.note_wait(|| match received {
            true => Awaited::Arrival { from },
            false => Awaited::Departure { to },
        });
        let start = self.last;
        let end = self.now();
        let since = self.since;
        self.note(start, end, EventKind::Message { message, since });
    }
}

/// The slice of a whole batch.
pub(super) fn batch_slice(event: &RecordedEvent, batch: &BatchRecord) -> Slice {
    let facts = vec![
        ("bytes", Fact::Number(batch.bytes as u64)),
        ("messages", Fact::Number(batch.messages as u64)),
    ];
    slice(event, SliceKind::Call, batch.operation.clone(), facts)
}

/// Adds one message to the trace. Its arrow begins before its last byte can have arrived and ends
/// when that byte has arrived. A message of a rank to itself has no arrow.
pub(super) fn add(
    trace: &mut Trace,
    event: &RecordedEvent,
    record: MessageRecord,
    since: u64,
    group: u64,
    whole: bool,
) {
    let MessageRecord { from, to, received, bytes, tag, number, step } = record;
    let (kind, peer, name, ranks) = if received {
        (SliceKind::Receive, from, format!("receive from {from}"), ("from", numbers(&[from])))
    } else {
        (SliceKind::Send, to, format!("send to {to}"), ("to", numbers(&[to])))
    };
    let facts = vec![
        ("bytes", Fact::Number(bytes as u64)),
        ranks,
        ("tag", Fact::Number(tag.into())),
        ("step", Fact::Number(step as u64)),
    ];
    trace.slices.push(Slice { mark: digit(peer), ..slice(event, kind, name, facts) });
    if whole && from != to {
        let at = if received { event.end.saturating_sub(1).max(event.start) } else { since };
        let message = message(super::operation(group, UNNUMBERED), from, to, number);
        trace.ends.push(ArrowEnd { message, lane: 0, at, points_here: received });
    }
}
