//! One message that is posted, and how far it has come.

use super::frame::Envelope;
use maypole_kernels::{DataType, View, ViewMut};
use std::fmt;

/// The memory of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageMemory<'a> {
    /// The bytes of a message to send.
    Data(View<'a>),
    /// The memory that a received message goes to.
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
    /// The rank that it goes to or comes from; `None` to receive from any rank. A message from any
    /// rank may be shorter than there is room for.
    pub(super) rank: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    /// Bytes of its memory.
    pub(super) bytes: usize,
    /// How many messages went between the same ranks in the same direction before it; known once it
    /// is sent, or once a receive has taken it.
    pub(super) number: u64,
    pub(super) state: MessageState,
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

/// How far a message has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MessageState {
    /// A send has not left as a whole. A receive has taken no message.
    Posted,
    /// A receive has cleared the message of rank `peer`, whose bytes are on their way.
    Cleared { peer: usize, bytes: usize },
    /// The bytes of a send are not needed any more: all have left, or the receiver dropped it. The
    /// message that a receive took from rank `peer` is in its place.
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

    /// True if nothing more will come or leave.
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

    /// The rank at its other end, if that is known.
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
    /// If it is not over.
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
