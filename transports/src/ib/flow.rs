//! Bytes and writes in flight between the two ends of a connection, and the credits for more.
//!
//! A place of the sender's ring is free again after two events, in any order: its write is
//! complete, so the adapter does not read it any more; and the peer has taken its bytes, so the
//! same place of the peer's ring may be written to.

use super::immediate::Immediate;

/// Bytes of a ring. Below 2^20, the limit of a credit's field.
pub(super) const RING: usize = 512 << 10;
/// Most bytes of one write.
const PIECE: usize = 64 << 10;
/// Writes of data that may be in flight and not credited.
pub(super) const WRITES: usize = 128;
/// Credits and goodbyes that may also be in flight: a credit is sent once a quarter of the ring or
/// of the writes was taken.
pub(super) const OTHERS: usize = 16;

/// Bytes and writes to the peer.
#[derive(Default)]
pub(super) struct Outbound {
    /// Bytes that were written to the peer's ring.
    pub(super) sent: u64,
    /// Of these, bytes that the peer has taken.
    credited: u64,
    /// Of these, bytes whose writes are complete: the adapter does not read them again.
    pub(super) completed: u64,
    /// Writes of data that the peer has not credited.
    pub(super) writes: usize,
    /// Requests that are not complete.
    pub(super) posted: usize,
    /// All requests, complete or not.
    pub(super) total: u64,
    pub(super) finished: bool,
    /// The peer receives nothing any more.
    pub(super) peer_gone: bool,
}

/// Bytes and writes from the peer.
#[derive(Default)]
pub(super) struct Inbound {
    /// Bytes that the peer has written to the ring.
    pub(super) arrived: u64,
    /// Of these, bytes that were taken.
    pub(super) taken: u64,
    /// Of these, bytes for which the peer has credit.
    pub(super) credited: u64,
    /// Writes of data since the last credit.
    pub(super) writes: u32,
    /// The peer sends nothing more.
    pub(super) finished: bool,
}

impl Outbound {
    /// Bytes that may be sent as one piece now.
    pub(super) fn room(&self) -> usize {
        if self.writes == WRITES || self.posted >= WRITES {
            return 0;
        }
        let over = self.credited.min(self.completed);
        let free = RING - (self.sent - over) as usize;
        let to_end = RING - (self.sent % RING as u64) as usize;
        free.min(to_end).min(PIECE)
    }

    /// True if a credit may be posted, and room for the end of the stream is left.
    pub(super) fn has_room_for_credit(&self) -> bool {
        self.posted < WRITES + OTHERS - 2
    }

    /// Takes a credit of the peer. False if the peer has no right to it.
    pub(super) fn take_credit(&mut self, bytes: u32, writes: u32) -> bool {
        self.credited += u64::from(bytes);
        match self.writes.checked_sub(writes as usize) {
            Some(left) if self.credited <= self.sent => {
                self.writes = left;
                true
            }
            _ => false,
        }
    }
}

impl Inbound {
    /// True if a credit is worth a write.
    pub(super) fn is_credit_due(&self) -> bool {
        self.taken - self.credited >= RING as u64 / 4 || self.writes as usize >= WRITES / 4
    }

    /// The credit to send to the peer.
    pub(super) fn take_credit(&mut self) -> Immediate {
        let bytes = (self.taken - self.credited) as u32;
        self.credited = self.taken;
        Immediate::Credit { bytes, writes: std::mem::take(&mut self.writes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither the peer's credit nor the completion of a write alone makes room.
    #[test]
    fn room_is_what_is_complete_and_credited() {
        let full = RING as u64;
        let out =
            |credited, completed| Outbound { sent: full, credited, completed, ..<_>::default() };
        assert_eq!(out(0, 0).room(), 0);
        assert_eq!(out(full, 0).room(), 0, "the adapter may read it again");
        assert_eq!(out(0, full).room(), 0, "the peer has not taken it");
        assert_eq!(out(100, 70).room(), 70);
        assert_eq!(out(full, full).room(), PIECE);
    }

    #[test]
    fn credits_can_say_all_that_is_taken() {
        let most = Immediate::Credit { bytes: RING as u32, writes: WRITES as u32 };
        assert_eq!(Immediate::decode(most.encode()), most);
    }
}
