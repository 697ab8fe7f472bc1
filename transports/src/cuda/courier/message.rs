//! The messages of couriers: a head that is a word, and for a publication its bytes.

use crate::stream::HEAD;
use bytemuck::{CheckedBitPattern, NoUninit};

/// The word that a message carries.
#[derive(CheckedBitPattern, Clone, Copy, Debug, Eq, NoUninit, PartialEq)]
#[repr(u8)]
pub(super) enum WordKind {
    /// Of a publication, with its bytes.
    Arrived = 1,
    Consumed = 2,
    Announced = 3,
    /// None: the last message.
    Goodbye = 4,
    /// Of a publication whose bytes were written [directly](crate::stream::direct) before.
    Written = 5,
}

/// The head of a message, as it travels.
#[derive(CheckedBitPattern, Clone, Copy, Debug, Eq, NoUninit, PartialEq)]
#[repr(C)]
pub(super) struct WordHead {
    pub(super) kind: WordKind,
    /// The place of the room among the [directions](super::places::Direction) of the sender.
    pub(super) room: u8,
    pub(super) lane: u8,
    pub(super) slot: u8,
    /// Bytes of the publication: behind the head, unless they were written before.
    pub(super) length: u32,
    pub(super) word: u64,
}

impl WordHead {
    pub(super) const GOODBYE: Self =
        Self { kind: WordKind::Goodbye, room: 0, lane: 0, slot: 0, length: 0, word: 0 };

    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        bytemuck::cast(self)
    }

    /// Those that [`to_bytes`](Self::to_bytes) has made; `None` for others.
    pub(super) fn from_bytes(bytes: [u8; HEAD]) -> Option<Self> {
        bytemuck::checked::try_cast(bytes).ok()
    }
}
