//! The announcement that each rank of a board sends to all others between two stretches of calls,
//! and before a call that may reach their memory. It has the time of the last stretch, and the
//! places of the rank's buffers.

use crate::engine::ways::StretchTime;

/// The time of a rank's last stretch, the offsets of its buffers in one call, and the programs by
/// which the rank can run the call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Announcement {
    /// The rank can run the call on registered memory.
    pub(super) is_registered: bool,
    /// Others may copy from the rank's buffers.
    pub(super) is_readable: bool,
    pub(super) report: StretchTime,
    /// The registrations that the rank's input and output lie in, if they are registered.
    pub(super) registrations: Option<[u32; 2]>,
    /// Offset in its registration, or address in its process, and length of both buffers.
    pub(super) places: [(u64, u64); 2],
}

/// Bytes of an announcement: it fits in the line of a publication.
pub(super) const ANNOUNCEMENT: usize = 48;

/// The first bits, above three flags, of the exchange's time in units of 16 nanoseconds, and of the
/// nanoseconds of a call.
const EXCHANGE: u32 = 3;
const CALL: u32 = 32;
const UNIT: u64 = 16;
const MOST_UNITS: u64 = (1 << (CALL - EXCHANGE)) - 1;

impl Announcement {
    pub(super) fn to_bytes(self) -> [u8; ANNOUNCEMENT] {
        let flags = [self.is_registered, self.is_readable, self.registrations.is_some()];
        let flags = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(flag));
        let call = self.report.call_ns.min(u64::from(u32::MAX)) << CALL;
        let exchange = (self.report.exchange_ns / UNIT).min(MOST_UNITS) << EXCHANGE;
        let [input, output] = self.places;
        let numbers: u64 = bytemuck::cast(self.registrations.unwrap_or_default());
        bytemuck::cast([flags | exchange | call, numbers, input.0, input.1, output.0, output.1])
    }

    pub(super) fn from_bytes(bytes: &[u8; ANNOUNCEMENT]) -> Self {
        let [first, numbers, places @ ..]: [u64; ANNOUNCEMENT / 8] = bytemuck::cast(*bytes);
        let is_set = |flag: u32| first >> flag & 1 == 1;
        Self {
            is_registered: is_set(0),
            is_readable: is_set(1),
            report: StretchTime {
                call_ns: first >> CALL,
                exchange_ns: (first >> EXCHANGE & MOST_UNITS) * UNIT,
            },
            registrations: is_set(2).then(|| bytemuck::cast(numbers)),
            places: [(places[0], places[1]), (places[2], places[3])],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn announcements_are_read_back(
            is_registered: bool,
            is_readable: bool,
            times: (u32, u32),
            registrations: Option<[u32; 2]>,
            places: [(u64, u64); 2],
        ) {
            let exchange_ns = u64::from(times.1) / UNIT * UNIT;
            let report = StretchTime { call_ns: times.0.into(), exchange_ns };
            let announcement =
                Announcement { is_registered, is_readable, report, registrations, places };
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
