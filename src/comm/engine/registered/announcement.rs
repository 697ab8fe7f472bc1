//! The announcement: before a call that may run on registered memory, each rank tells all others
//! where its buffers lie.

use maypole_transports::registered::Ticket;

/// Where a rank's buffers of one call lie.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Announcement {
    /// True if all buffers that others would touch are registered.
    pub(super) is_registered: bool,
    pub(super) input: Ticket,
    pub(super) output: Ticket,
}

/// Bytes of an announcement: it fits in the line of a publication.
pub(super) const ANNOUNCEMENT: usize = 48;

impl Announcement {
    pub(super) fn to_bytes(self) -> [u8; ANNOUNCEMENT] {
        let Self { is_registered, input, output } = self;
        let numbers = u64::from(input.registration) << 32 | u64::from(output.registration);
        let words =
            [u64::from(is_registered), numbers, input.offset, input.len, output.offset, output.len];
        let mut bytes = [0; ANNOUNCEMENT];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; ANNOUNCEMENT]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let ticket = |registration: u64, at: usize| Ticket {
            registration: registration as u32,
            offset: word(at),
            len: word(at + 1),
        };
        Self {
            is_registered: word(0) != 0,
            input: ticket(word(1) >> 32, 2),
            output: ticket(word(1) & u64::from(u32::MAX), 4),
        }
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
            input in ticket(),
            output in ticket(),
        ) {
            let announcement = Announcement { is_registered, input, output };
            prop_assert_eq!(Announcement::from_bytes(&announcement.to_bytes()), announcement);
        }
    }
}
