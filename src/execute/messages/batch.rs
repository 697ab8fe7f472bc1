//! The sends and receives that one call posts together.

use super::frame::Envelope;
use crate::execute::record::MessageRecord;
use crate::schedule::{Schedule, Step, input, output};
use maypole_kernels::{DataType, View, ViewMut};
use std::fmt;

/// A message to send.
#[derive(Debug)]
pub(super) struct PostedSend<'a> {
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) data: View<'a>,
    /// How many messages went to the same rank before it; known once it is posted.
    pub(super) number: u64,
    /// True once all of its bytes have left the caller's memory.
    pub(super) complete: bool,
}

impl PostedSend<'_> {
    pub(super) fn envelope(&self) -> Envelope {
        Envelope { tag: self.tag, kind: self.kind, bytes: self.data.len() }
    }
}

/// A message to receive.
#[derive(Debug)]
pub(super) struct PostedReceive<'a> {
    /// The rank that sends it; `None` for any rank.
    pub(super) from: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) into: ViewMut<'a>,
    /// True if the message must fill `into`; else it may be shorter.
    pub(super) exact: bool,
    /// How many messages came from the same rank before it; known once it is taken.
    pub(super) number: u64,
    pub(super) state: ReceiveState,
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
}

impl PostedReceive<'_> {
    /// True if it takes a message of `peer` with this tag.
    pub(super) fn accepts(&self, peer: usize, tag: u32) -> bool {
        let posted = self.state == ReceiveState::Posted;
        posted && self.tag == tag && self.from.is_none_or(|from| from == peer)
    }

    /// True if the type and the length of the message are right.
    pub(super) fn fits(&self, message: Envelope) -> bool {
        let room = self.into.len();
        let length = if self.exact { message.bytes == room } else { message.bytes <= room };
        length && self.kind == message.kind
    }

    fn is_complete(&self) -> bool {
        matches!(self.state, ReceiveState::Complete { .. })
    }

    /// The rank whose message it takes, if that is known.
    fn peer(&self) -> Option<usize> {
        match self.state {
            ReceiveState::Posted => self.from,
            ReceiveState::Cleared { peer, .. } | ReceiveState::Complete { peer, .. } => Some(peer),
        }
    }
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
        self.sends.push(PostedSend { to, tag, kind, data, number: 0, complete: false });
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
        self.receives.push(PostedReceive {
            from,
            tag,
            kind,
            into,
            exact: from.is_some(),
            number: 0,
            state: ReceiveState::Posted,
        });
    }

    /// For each receive, in order: the rank whose message came, and its length in elements.
    ///
    /// # Panics
    /// If a receive is not complete.
    pub(crate) fn arrivals(&self) -> Vec<(usize, usize)> {
        let arrival = |receive: &PostedReceive<'_>| match receive.state {
            ReceiveState::Complete { peer, bytes } => (peer, bytes / receive.kind.size()),
            ReceiveState::Posted | ReceiveState::Cleared { .. } => {
                unreachable!("a batch ends when all of its messages are complete")
            }
        };
        self.receives.iter().map(arrival).collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        let received = self.receives.iter().all(PostedReceive::is_complete);
        received && self.sends.iter().all(|send| send.complete)
    }

    /// The first message that is not complete, and the rank that it waits for, if that is known.
    pub(crate) fn awaited(&self) -> (BatchMember, Option<usize>) {
        if let Some(at) = self.receives.iter().position(|receive| !receive.is_complete()) {
            return (BatchMember::Receive(at), self.receives[at].peer());
        }
        let at = self.sends.iter().position(|send| !send.complete).unwrap_or(0);
        (BatchMember::Send(at), self.sends.get(at).map(|send| send.to))
    }

    /// The batch as this rank's part of a schedule; see
    /// [`Group::schedule`](crate::comm::Group::schedule). `None` while it is not known which rank a
    /// receive takes a message from.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let sends = self.sends.iter().enumerate();
        let sends = sends.map(|(at, send)| Some(Step::Send { from: input(at), to: send.to }));
        let receives = self.receives.iter().enumerate();
        let receives =
            receives.map(|(at, it)| Some(Step::Recv { into: output(at), from: it.peer()? }));
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
        let sends = self.sends.iter().enumerate().filter(|(_, send)| send.complete);
        let sends = sends.map(move |(at, send)| MessageRecord {
            from: rank,
            to: send.to,
            received: false,
            bytes: send.data.len(),
            tag: send.tag,
            number: send.number,
            step: self.step(BatchMember::Send(at)),
        });
        let receives = self.receives.iter().enumerate().filter_map(move |(at, receive)| {
            let ReceiveState::Complete { peer, bytes } = receive.state else { return None };
            Some(MessageRecord {
                from: peer,
                to: rank,
                received: true,
                bytes,
                tag: receive.tag,
                number: receive.number,
                step: self.step(BatchMember::Receive(at)),
            })
        });
        sends.chain(receives)
    }

    /// One message in words, for errors and traces.
    pub(crate) fn describe(&self, member: BatchMember) -> String {
        let one = match member {
            BatchMember::Send(at) => self.sends[at].to_string(),
            BatchMember::Receive(at) => self.receives[at].to_string(),
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

impl fmt::Display for PostedSend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.data.len() / self.kind.size();
        write!(f, "send({count} x {}, to rank {}, tag {})", self.kind.name(), self.to, self.tag)
    }
}

impl fmt::Display for PostedReceive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.into.len() / self.kind.size();
        let kind = self.kind.name();
        match self.from {
            Some(from) => write!(f, "recv({count} x {kind}, from rank {from}, tag {})", self.tag),
            None => write!(f, "recv_any(up to {count} x {kind}, tag {})", self.tag),
        }
    }
}
