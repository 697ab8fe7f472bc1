//! The sends and receives that one call posts together.

use super::frame::Envelope;
use crate::execute::record::MessageRecord;
use crate::schedule::{Schedule, Step, input, output};
use maypole_kernels::{DataType, View, ViewMut};
use std::fmt;

/// What is known of a message to send.
#[derive(Debug)]
pub(super) struct SendHead {
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) bytes: usize,
    /// How many messages went to the same rank before it; known once it is posted.
    pub(super) number: u64,
    /// True once its bytes are not needed any more: all have left, or the receiver dropped it.
    pub(super) complete: bool,
}

impl SendHead {
    pub(super) fn new(to: usize, tag: u32, kind: DataType, bytes: usize) -> Self {
        Self { to, tag, kind, bytes, number: 0, complete: false }
    }

    pub(super) fn envelope(&self) -> Envelope {
        Envelope { tag: self.tag, kind: self.kind, bytes: self.bytes }
    }

    /// Its length in elements.
    pub(super) fn count(&self) -> usize {
        self.bytes / self.kind.size()
    }
}

/// What is known of a message to receive.
#[derive(Debug)]
pub(super) struct ReceiveHead {
    /// The rank that sends it; `None` for any rank. A message from any rank may be shorter than
    /// there is room for.
    pub(super) from: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    /// Bytes of the memory that it goes to.
    pub(super) room: usize,
    /// How many messages came from the same rank before it; known once it is taken.
    pub(super) number: u64,
    pub(super) state: ReceiveState,
}

/// A message that does not fit its receive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Misfit {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    /// The type of its elements, and how many there are.
    pub(crate) sent: (DataType, usize),
    /// The type of the elements of the receive, and how many it has room for.
    pub(crate) room: (DataType, usize),
    /// True if fewer elements than there is room for would do.
    pub(crate) up_to: bool,
}

/// How far a receive has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReceiveState {
    /// It has taken no message.
    Posted,
    /// It has cleared the message of rank `peer`, whose bytes are on their way.
    Cleared { peer: usize, bytes: usize },
    /// The message of rank `peer` is in its place.
    Complete { peer: usize, bytes: usize },
    /// The message that it took is of another type or length, and was dropped.
    Misfit(Misfit),
}

impl ReceiveState {
    /// True if nothing more will come.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Complete { .. } | Self::Misfit(_))
    }
}

impl ReceiveHead {
    pub(super) fn new(from: Option<usize>, tag: u32, kind: DataType, room: usize) -> Self {
        Self { from, tag, kind, room, number: 0, state: ReceiveState::Posted }
    }

    /// True if it receives from `peer`.
    pub(super) fn is_from(&self, peer: usize) -> bool {
        self.from.is_none_or(|from| from == peer)
    }

    /// True if it takes a message of `peer` with this tag.
    fn accepts(&self, peer: usize, tag: u32) -> bool {
        self.state == ReceiveState::Posted && self.tag == tag && self.is_from(peer)
    }

    /// Why the message of `peer` cannot be received here, if it cannot.
    pub(super) fn misfit(&self, peer: usize, message: Envelope) -> Option<Misfit> {
        let up_to = self.from.is_none();
        let Envelope { tag, kind, bytes } = message;
        let length = if up_to { bytes <= self.room } else { bytes == self.room };
        let fits = length && self.kind == kind && bytes.is_multiple_of(kind.size());
        let sent = (kind, bytes / kind.size());
        let room = (self.kind, self.room / self.kind.size());
        (!fits).then_some(Misfit { peer, tag, sent, room, up_to })
    }

    /// The rank whose message it takes, if that is known.
    pub(super) fn peer(&self) -> Option<usize> {
        match self.state {
            ReceiveState::Posted => self.from,
            ReceiveState::Cleared { peer, .. } | ReceiveState::Complete { peer, .. } => Some(peer),
            ReceiveState::Misfit(misfit) => Some(misfit.peer),
        }
    }
}

/// A message to send, of the running call.
#[derive(Debug)]
pub(super) struct PostedSend<'a> {
    pub(super) head: SendHead,
    pub(super) data: View<'a>,
}

/// A message to receive, of the running call.
#[derive(Debug)]
pub(super) struct PostedReceive<'a> {
    pub(super) head: ReceiveHead,
    pub(super) into: ViewMut<'a>,
}

/// All messages that one call posts before it waits for any of them.
#[derive(Debug, Default)]
pub(crate) struct MessageBatch<'a> {
    pub(super) sends: Vec<PostedSend<'a>>,
    pub(super) receives: Vec<PostedReceive<'a>>,
}

/// One message of a batch, by its index among the sends or the receives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchMember {
    Send(usize),
    Receive(usize),
}

impl<'a> MessageBatch<'a> {
    /// Adds a send of `data`, elements of `kind`, to rank `to`.
    pub(crate) fn send(&mut self, kind: DataType, data: View<'a>, to: usize, tag: u32) {
        self.sends.push(PostedSend { head: SendHead::new(to, tag, kind, data.len()), data });
    }

    /// Adds a receive into `into`, elements of `kind`, from rank `from` or, without one, from any
    /// rank. A message from any rank may be shorter than `into`.
    pub(crate) fn receive(
        &mut self,
        kind: DataType,
        into: ViewMut<'a>,
        from: Option<usize>,
        tag: u32,
    ) {
        self.receives
            .push(PostedReceive { head: ReceiveHead::new(from, tag, kind, into.len()), into });
    }

    /// For each receive, in order: the rank whose message came, and its length in elements.
    ///
    /// # Errors
    /// The first message that did not fit its receive.
    ///
    /// # Panics
    /// If a receive is not over.
    pub(crate) fn arrivals(&self) -> Result<Vec<(usize, usize)>, Misfit> {
        let arrival = |receive: &PostedReceive<'_>| match receive.head.state {
            ReceiveState::Complete { peer, bytes } => Ok((peer, bytes / receive.head.kind.size())),
            ReceiveState::Misfit(misfit) => Err(misfit),
            ReceiveState::Posted | ReceiveState::Cleared { .. } => {
                unreachable!("a batch ends when all of its messages are complete")
            }
        };
        self.receives.iter().map(arrival).collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        let received = self.receives.iter().all(|receive| receive.head.state.is_over());
        received && self.sends.iter().all(|send| send.head.complete)
    }

    /// The first receive that takes a message of `peer` with this tag.
    pub(super) fn first_open(&self, peer: usize, tag: u32) -> Option<usize> {
        self.receives.iter().position(|receive| receive.head.accepts(peer, tag))
    }

    /// The first message that is not complete, and the rank that it waits for, if that is known.
    pub(crate) fn awaited(&self) -> (BatchMember, Option<usize>) {
        let open = |receive: &PostedReceive<'_>| !receive.head.state.is_over();
        if let Some(at) = self.receives.iter().position(open) {
            return (BatchMember::Receive(at), self.receives[at].head.peer());
        }
        let at = self.sends.iter().position(|send| !send.head.complete).unwrap_or(0);
        (BatchMember::Send(at), self.sends.get(at).map(|send| send.head.to))
    }

    /// The batch as this rank's part of a schedule; see
    /// [`Group::schedule`](crate::comm::Group::schedule). `None` while it is not known which rank a
    /// receive takes a message from.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let sends = self.sends.iter().enumerate();
        let sends = sends.map(|(at, send)| Some(Step::Send { from: input(at), to: send.head.to }));
        let receives = self.receives.iter().enumerate();
        let receives =
            receives.map(|(at, it)| Some(Step::Recv { into: output(at), from: it.head.peer()? }));
        let steps = sends.chain(receives).collect::<Option<_>>()?;
        let chunks = self.sends.len().max(self.receives.len()).max(1);
        Some(Schedule::new(chunks, steps))
    }

    /// The number of messages.
    pub(crate) fn len(&self) -> usize {
        self.sends.len() + self.receives.len()
    }

    /// The bytes of all sends and the greatest number of bytes that the receives can take, added.
    pub(crate) fn bytes(&self) -> usize {
        let sent: usize = self.sends.iter().map(|send| send.data.len()).sum();
        let received: usize = self.receives.iter().map(|receive| receive.into.len()).sum();
        sent + received
    }

    /// The whole batch in words, for traces.
    pub(crate) fn title(&self) -> String {
        match self.len() {
            1 => self.describe(self.awaited().0),
            _ => format!("group({} sends, {} receives)", self.sends.len(), self.receives.len()),
        }
    }

    /// The messages that are complete, as rank `rank` records them.
    pub(super) fn complete_messages(&self, rank: usize) -> impl Iterator<Item = MessageRecord> {
        let sends = self.sends.iter().enumerate().filter(|(_, send)| send.head.complete);
        let sends = sends.map(move |(at, send)| MessageRecord {
            from: rank,
            to: send.head.to,
            received: false,
            bytes: send.head.bytes,
            tag: send.head.tag,
            number: send.head.number,
            step: self.step(BatchMember::Send(at)),
        });
        let receives = self.receives.iter().enumerate().filter_map(move |(at, receive)| {
            let ReceiveState::Complete { peer, bytes } = receive.head.state else { return None };
            Some(MessageRecord {
                from: peer,
                to: rank,
                received: true,
                bytes,
                tag: receive.head.tag,
                number: receive.head.number,
                step: self.step(BatchMember::Receive(at)),
            })
        });
        sends.chain(receives)
    }

    /// One message in words, for errors and traces.
    pub(crate) fn describe(&self, member: BatchMember) -> String {
        let one = match member {
            BatchMember::Send(at) => self.sends[at].head.to_string(),
            BatchMember::Receive(at) => self.receives[at].head.to_string(),
        };
        match self.len() {
            1 => one,
            all => format!("{one}, one of a group of {all}"),
        }
    }

    /// The index of a message's step in [`schedule`](Self::schedule).
    pub(crate) fn step(&self, member: BatchMember) -> usize {
        match member {
            BatchMember::Send(at) => at,
            BatchMember::Receive(at) => self.sends.len() + at,
        }
    }
}

impl fmt::Display for SendHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count();
        write!(f, "send({count} x {}, to rank {}, tag {})", self.kind.name(), self.to, self.tag)
    }
}

impl fmt::Display for ReceiveHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.room / self.kind.size();
        let kind = self.kind.name();
        match self.from {
            Some(from) => write!(f, "recv({count} x {kind}, from rank {from}, tag {})", self.tag),
            None => write!(f, "recv_any(up to {count} x {kind}, tag {})", self.tag),
        }
    }
}
