//! The announcement that each rank of a board sends to all others between two stretches of calls,
//! and before a call that may reach their memory. It has the time of the last stretch, and the
//! places of the rank's buffers.

/// The time of a rank's last stretch, the offsets of its buffers in one call, and the programs by
/// which the rank can run the call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Announcement {
    /// The rank can run the call on registered memory.
    pub(super) is_registered: bool,
    /// Others may copy from the rank's buffers.
    pub(super) is_readable: bool,
    /// Nanoseconds of a call in the rank's last stretch; zero if none has ended.
    pub(super) call_ns: u64,
    /// The registrations that the rank's input and output lie in, if they are registered.
    pub(super) registrations: Option<[u32; 2]>,
    /// Offset in its registration, or address in its process, and length of both buffers.
    pub(super) places: [(u64, u64); 2],
}

/// Bytes of an announcement: it fits in the line of a publication.
pub(super) const ANNOUNCEMENT: usize = 48;

/// The first bit of the nanoseconds of a call, which are above three flags.
const CALL: u32 = 32;

impl Announcement {
    pub(super) fn to_bytes(self) -> [u8; ANNOUNCEMENT] {
        let flags = [self.is_registered, self.is_readable, self.registrations.is_some()];
        let flags = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(flag));
        let call = self.call_ns.min(u64::from(u32::MAX)) << CALL;
        let [input, output] = self.places;
        let numbers: u64 = bytemuck::cast(self.registrations.unwrap_or_default());
        bytemuck::cast([flags | call, numbers, input.0, input.1, output.0, output.1])
    }

    pub(super) fn from_bytes(bytes: &[u8; ANNOUNCEMENT]) -> Self {
        let [first, numbers, places @ ..]: [u64; ANNOUNCEMENT / 8] = bytemuck::cast(*bytes);
        let is_set = |flag: u32| first >> flag & 1 == 1;
        Self {
            is_registered: is_set(0),
            is_readable: is_set(1),
            call_ns: first >> CALL,
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
            call_ns: u32,
            registrations: Option<[u32; 2]>,
            places: [(u64, u64); 2],
        ) {
            let call_ns = call_ns.into();
            let announcement =
                Announcement { is_registered, is_readable, call_ns, registrations, places };
            prop_assert_eq!(Announcement::from_bytes(&announcement.to_bytes()), announcement);
        }
    }

    #[test]
    fn times_that_have_no_room_are_the_longest_that_have() {
        let longest =
            Announcement { call_ns: u64::MAX, is_readable: true, ..Announcement::default() };
        let read = Announcement::from_bytes(&longest.to_bytes());
        assert_eq!(read.call_ns, u64::from(u32::MAX));
        assert!(read.is_readable && !read.is_registered);
    }
}
