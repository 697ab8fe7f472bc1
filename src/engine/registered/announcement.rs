//! The announcement that each rank of a board sends to all others between two stretches of calls,
//! and before a call that may reach their memory. It has the time of the last stretch, and the
//! places of the rank's buffers.

use crate::engine::ways::StretchTime;
use maypole_transports::registered::Ticket;

/// The time of a rank's last stretch, the offsets of its buffers in one call, and the programs by
/// which the rank can run the call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Announcement {
    /// The rank can run the call on registered memory.
    pub(super) is_registered: bool,
    /// Others may copy from the rank's buffers.
    pub(super) is_readable: bool,
    pub(super) report: StretchTime,
    pub(super) place: AnnouncedPlace,
}

/// Where a rank's input and output lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AnnouncedPlace {
    /// In registered memory.
    Registered([Ticket; 2]),
    /// At these addresses of its process, with these lengths.
    Process([(u64, u64); 2]),
}

impl Default for AnnouncedPlace {
    fn default() -> Self {
        Self::Process([(0, 0); 2])
    }
}

/// Bytes of an announcement: it fits in the line of a publication.
pub(super) const ANNOUNCEMENT: usize = 48;

const REGISTERED: u64 = 1;
const READABLE: u64 = 2;
const BY_TICKET: u64 = 4;
/// Above the flags: units of the exchange's time, and nanoseconds of a call.
const EXCHANGE: u32 = 3;
const CALL: u32 = 32;
/// Nanoseconds of a unit.
const UNIT: u64 = 16;
const MOST_UNITS: u64 = (1 << (CALL - EXCHANGE)) - 1;

impl Announcement {
    pub(super) fn to_bytes(self) -> [u8; ANNOUNCEMENT] {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let StretchTime { call_ns, exchange_ns } = self.report;
        let call = call_ns.min(u64::from(u32::MAX)) << CALL;
        let report = call | (exchange_ns / UNIT).min(MOST_UNITS) << EXCHANGE;
        let flags =
            flag(self.is_registered, REGISTERED) | flag(self.is_readable, READABLE) | report;
        let words = match self.place {
            AnnouncedPlace::Registered([input, output]) => {
                let numbers = u64::from(input.registration) << 32 | u64::from(output.registration);
                [flags | BY_TICKET, numbers, input.offset, input.len, output.offset, output.len]
            }
            AnnouncedPlace::Process([input, output]) => {
                [flags, 0, input.0, input.1, output.0, output.1]
            }
        };
        let mut bytes = [0; ANNOUNCEMENT];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; ANNOUNCEMENT]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let is_set = |flag: u64| word(0) & flag != 0;
        let place = match is_set(BY_TICKET) {
            true => {
                let ticket = |registration: u64, at: usize| Ticket {
                    registration: registration as u32,
                    offset: word(at),
                    len: word(at + 1),
                };
                AnnouncedPlace::Registered([ticket(word(1) >> 32, 2), ticket(word(1), 4)])
            }
            false => AnnouncedPlace::Process([(word(2), word(3)), (word(4), word(5))]),
        };
        let exchange_ns = (word(0) >> EXCHANGE & MOST_UNITS) * UNIT;
        let report = StretchTime { call_ns: word(0) >> CALL, exchange_ns };
        Self { is_registered: is_set(REGISTERED), is_readable: is_set(READABLE), report, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket() -> impl Strategy<Value = Ticket> {
        any::<(u32, u64, u64)>().prop_map(|(registration, offset, len)| Ticket {
            registration,
            offset,
            len,
        })
    }

    proptest! {
        #[test]
        fn announcements_are_read_back(
            is_registered: bool,
            is_readable: bool,
            report: (u32, u32),
            tickets in (ticket(), ticket()),
            places: Option<[(u64, u64); 2]>,
        ) {
            let tickets = AnnouncedPlace::Registered(tickets.into());
            let place = places.map_or(tickets, AnnouncedPlace::Process);
            let exchange_ns = u64::from(report.1) / UNIT * UNIT;
            let report = StretchTime { call_ns: report.0.into(), exchange_ns };
            let announcement = Announcement { is_registered, is_readable, report, place };
            prop_assert_eq!(Announcement::from_bytes(&announcement.to_bytes()), announcement);
        }
    }

    #[test]
    fn times_that_have_no_room_are_the_longest_that_have() {
        let report = StretchTime { call_ns: u64::MAX, exchange_ns: u64::MAX };
        let longest = Announcement { report, is_readable: true, ..Announcement::default() };
        let read = Announcement::from_bytes(&longest.to_bytes());
        assert_eq!(read.report.call_ns, u64::from(u32::MAX));
        assert!(read.report.exchange_ns > 8_000_000_000 && read.is_readable && !read.is_registered);
    }
}
