//! One posted message, and its state.

use super::frame::Envelope;
use maypole_kernels::{DataType, View, ViewMut};
use std::fmt;

#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageMemory<'a> {
    /// The bytes of a message to send.
    Data(View<'a>),
    /// The memory for a received message.
    Room(ViewMut<'a>),
}

impl<'a> MessageMemory<'a> {
    #[inline(always)]
    pub(super) fn data(self) -> View<'a> {
        match self {
            Self::Data(data) => data,
            Self::Room(room) => room.as_view(),
        }
    }

    pub(crate) fn len(self) -> usize {
        self.data().len()
    }

    #[inline(always)]
    pub(super) fn room(self) -> ViewMut<'a> {
        match self {
            Self::Room(room) => room,
            Self::Data(_) => unreachable!("only a receive takes bytes"),
        }
    }
}

/// The description of a message, without its memory.
#[derive(Debug)]
pub(super) struct MessageHead {
    /// True for a message to send, false for one to receive.
    pub(super) sends: bool,
    /// The other rank of the message; `None` to receive from any rank. A message from any rank may
    /// be shorter than its memory.
    pub(super) rank: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    /// Bytes of its memory.
    pub(super) bytes: usize,
    /// The sequence number among the messages between these ranks in this direction. Set when it is
    /// sent, or when a receive takes it.
    pub(super) number: u64,
    pub(super) state: MessageState,
}

/// A message that does not fit its receive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Misfit {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    /// The type and number of its elements.
    pub(crate) sent: (DataType, usize),
    /// The type and number of elements of the receive's memory.
    pub(crate) room: (DataType, usize),
    /// True if the receive accepts fewer elements.
    pub(crate) up_to: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MessageState {
    /// A send that is not yet sent completely, or a receive that has taken no message.
    Posted,
    /// A receive has cleared the message of rank `peer`, whose bytes are in flight.
    Cleared { peer: usize, bytes: usize },
    /// A send whose memory is free: all bytes have left, or the receiver dropped it. Or a receive
    /// whose memory holds the message of rank `peer`.
    Complete { peer: usize, bytes: usize },
    /// The message that a receive took is of another type or length, and was dropped.
    Misfit(Misfit),
}

impl MessageHead {
    pub(super) fn new(
        memory: MessageMemory<'_>,
        kind: DataType,
        rank: Option<usize>,
        tag: u32,
    ) -> Self {
        let sends = matches!(memory, MessageMemory::Data(_));
        let bytes = memory.len();
        Self { sends, rank, tag, kind, bytes, number: 0, state: MessageState::Posted }
    }

    pub(super) fn envelope(&self) -> Envelope {
        Envelope { tag: self.tag, kind: self.kind, bytes: self.bytes }
    }

    /// True if no further byte will arrive or leave.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, MessageState::Complete { .. } | MessageState::Misfit(_))
    }

    /// True if it receives from `peer`.
    pub(super) fn is_from(&self, peer: usize) -> bool {
        self.rank.is_none_or(|from| from == peer)
    }

    /// True if it is a receive that takes a message of `peer` with this tag.
    pub(super) fn accepts(&self, peer: usize, tag: u32) -> bool {
        let is_open = !self.sends && self.state == MessageState::Posted;
        is_open && self.tag == tag && self.is_from(peer)
    }

    /// Why the message of `peer` cannot be received here, if it cannot.
    pub(super) fn misfit(&self, peer: usize, message: Envelope) -> Option<Misfit> {
        let up_to = self.rank.is_none();
        let Envelope { tag, kind, bytes } = message;
        let length = if up_to { bytes <= self.bytes } else { bytes == self.bytes };
        let fits = length && self.kind == kind && bytes.is_multiple_of(kind.size());
        let sent = (kind, bytes / kind.size());
        let room = (self.kind, self.bytes / self.kind.size());
        (!fits).then_some(Misfit { peer, tag, sent, room, up_to })
    }

    /// The rank at its other end; `None` for a receive from any rank that has taken no message.
    pub(super) fn peer(&self) -> Option<usize> {
        match self.state {
            MessageState::Posted => self.rank,
            MessageState::Cleared { peer, .. } | MessageState::Complete { peer, .. } => Some(peer),
            MessageState::Misfit(misfit) => Some(misfit.peer),
        }
    }

    /// The rank at its other end, and its length in elements.
    ///
    /// # Errors
    /// It did not fit its receive.
    ///
    /// # Panics
    /// If it has not completed.
    pub(super) fn arrival(&self) -> Result<(usize, usize), Misfit> {
        match self.state {
            MessageState::Complete { peer, bytes } => Ok((peer, bytes / self.kind.size())),
            MessageState::Misfit(misfit) => Err(misfit),
            MessageState::Posted | MessageState::Cleared { .. } => {
                unreachable!("only a message that is over has arrived")
            }
        }
    }
}

impl fmt::Display for MessageHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tag, .. } = self;
        let (count, kind) = (self.bytes / kind.size(), kind.name());
        match (self.sends, self.rank) {
            (true, Some(to)) => write!(f, "send({count} x {kind}, to rank {to}, tag {tag})"),
            (false, Some(from)) => write!(f, "recv({count} x {kind}, from rank {from}, tag {tag})"),
            (_, None) => write!(f, "recv_any(up to {count} x {kind}, tag {tag})"),
        }
    }
}
