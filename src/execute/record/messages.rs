//! Messages between two ranks, as they are recorded and shown.

use super::notes::{message, numbers, slice};
use super::{Event, Recorder, What};
use crate::execute::Awaited;
use crate::schedule::trace::{ArrowEnd, Fact, Slice, SliceKind, Trace, digit};

/// A message that has left, or that is here.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Who sends it.
    pub from: usize,
    /// Who receives it.
    pub to: usize,
    /// Whether it is the receiver that tells.
    pub comes: bool,
    /// How long it is.
    pub bytes: usize,
    /// What it is received by.
    pub tag: u32,
    /// How many messages went from the one to the other before it.
    pub number: u64,
    /// Its step in the schedule of what was posted together.
    pub step: usize,
}

/// What was posted together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) operation: String,
    pub(super) messages: usize,
    pub(super) bytes: usize,
    pub(super) whole: bool,
}

/// Stands where calls have their number: messages are counted by pair.
const UNNUMBERED: u64 = u64::MAX;

impl Recorder {
    /// Records `messages` messages of `bytes` bytes in all that are posted together, which is what
    /// `run` does. What made it fail may name a rank.
    ///
    /// # Errors
    /// Those of `run`.
    #[cold]
    #[inline(never)]
    pub fn group<E>(
        &mut self,
        operation: String,
        (messages, bytes): (usize, usize),
        run: impl FnOnce(&mut Self) -> Result<(), E>,
        whom: impl FnOnce(&E) -> Option<usize>,
    ) -> Result<(), E> {
        self.around(run, whom, |whole| What::Group(Group { operation, messages, bytes, whole }))
    }

    /// Bytes are about to move: what was awaited until now shows as a wait.
    pub fn about_to_move(&mut self) {
        self.since = self.now();
    }

    /// A message is done, by what has moved since [`about_to_move`](Self::about_to_move).
    pub fn message(&mut self, message: Message) {
        let Message { from, to, comes, .. } = message;
        self.note_wait(
            || if comes { Awaited::Arrival { from } } else { Awaited::Departure { to } },
        );
        let (start, end, since) = (self.last, self.now(), self.since);
        self.note(start, end, What::Message { message, since });
    }
}

/// The slice of all that was posted together.
pub(super) fn group(event: &Event, group: &Group) -> Slice {
    let facts = vec![
        ("bytes", Fact::Number(group.bytes as u64)),
        ("messages", Fact::Number(group.messages as u64)),
    ];
    slice(event, SliceKind::Call, group.operation.clone(), facts)
}

/// Adds one message. Its arrow leaves before its last byte can have come, and arrives when that is
/// here; a message to oneself has none.
pub(super) fn add(
    trace: &mut Trace,
    event: &Event,
    it: Message,
    since: u64,
    group: u64,
    whole: bool,
) {
    let Message { from, to, comes, bytes, tag, number, step } = it;
    let (kind, peer, name, ranks) = if comes {
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
        let at = if comes { event.end.saturating_sub(1).max(event.start) } else { since };
        let message = message(super::operation(group, UNNUMBERED), from, to, number);
        trace.ends.push(ArrowEnd { message, lane: 0, at, points_here: comes });
    }
}
