//! The messages of couriers: a head that is a word, and for a publication its bytes.

use crate::stream::HEAD;

/// The word that a message carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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

/// The head of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&[self.kind as u8, self.room, self.lane, self.slot]);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word.to_le_bytes());
        bytes
    }

    /// Those that [`to_bytes`](Self::to_bytes) has made; `None` for others.
    pub(super) fn from_bytes(bytes: [u8; HEAD]) -> Option<Self> {
        let [kind, room, lane, slot, a, b, c, d, word @ ..] = bytes;
        let kind = match kind {
            1 => WordKind::Arrived,
            2 => WordKind::Consumed,
            3 => WordKind::Announced,
            4 => WordKind::Goodbye,
            5 => WordKind::Written,
            _ => return None,
        };
        let length = u32::from_le_bytes([a, b, c, d]);
        Some(Self { kind, room, lane, slot, length, word: u64::from_le_bytes(word) })
    }
}
