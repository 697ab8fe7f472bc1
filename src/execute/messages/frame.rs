//! The frames on a link: those of the sender, and the replies of its receiver.

use maypole_kernels::DataType;
use maypole_transports::HEAD;

/// The description of a message, which precedes its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Envelope {
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) bytes: usize,
}

/// One frame. All but [`ClearToSend`](Self::ClearToSend), [`Dropped`](Self::Dropped) and
/// [`Credit`](Self::Credit) go from the sender of messages to their receiver;
/// [`Switch`](Self::Switch) goes both ways.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Frame {
    /// An eager message; its bytes follow.
    Eager(Envelope),
    /// A message by rendezvous; its bytes stay with the sender until they are cleared.
    ReadyToSend(Envelope),
    /// The bytes of the message of this number, which has been cleared, follow.
    Data(u64),
    /// An offer to use shared memory, of this many bytes, follows.
    Offer(u64),
    /// All later frames of this direction go through shared memory.
    Switch,
    /// From the receiver: a receive has taken the message of this number, and its bytes may be
    /// sent.
    ClearToSend(u64),
    /// From the receiver: this many bytes of credit are free again.
    Credit(u64),
    /// From the receiver: the message of this number did not fit the receive that took it, and its
    /// bytes must not be sent.
    Dropped(u64),
}

impl Frame {
    /// Encodes it in a header of sixteen bytes: the kind of frame, the element type, a checksum of
    /// all other bytes, the tag and a number, in little-endian order.
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let (frame, kind, tag, number): (u8, u8, u32, u64) = match self {
            Self::Eager(message) => (1, message.kind as u8, message.tag, message.bytes as u64),
            Self::ReadyToSend(message) => {
                (2, message.kind as u8, message.tag, message.bytes as u64)
            }
            Self::Data(number) => (3, 0, 0, number),
            Self::ClearToSend(number) => (4, 0, 0, number),
            Self::Credit(bytes) => (5, 0, 0, bytes),
            Self::Offer(bytes) => (6, 0, 0, bytes),
            Self::Switch => (7, 0, 0, 0),
            Self::Dropped(number) => (8, 0, 0, number),
        };
        let word = u128::from(frame)
            | u128::from(kind) << 8
            | u128::from(tag) << 32
            | u128::from(number) << 64;
        (word | u128::from(parity(word)) << 16).to_le_bytes()
    }

    /// The reverse of [`to_bytes`](Self::to_bytes); `None` if the bytes are not a frame.
    pub(super) fn from_bytes(bytes: [u8; HEAD]) -> Option<Self> {
        let word = u128::from_le_bytes(bytes);
        // The XOR over all bytes, checksum included, is zero for a valid frame.
        if parity(word) != 0 {
            return None;
        }
        let (tag, number) = ((word >> 32) as u32, (word >> 64) as u64);
        let envelope = || {
            let kind = *DataType::ALL.get(usize::from(bytes[1]))?;
            Some(Envelope { tag, kind, bytes: usize::try_from(number).ok()? })
        };
        match bytes[0] {
            1 => envelope().map(Self::Eager),
            2 => envelope().map(Self::ReadyToSend),
            3 => Some(Self::Data(number)),
            4 => Some(Self::ClearToSend(number)),
            5 => Some(Self::Credit(number)),
            6 => Some(Self::Offer(number)),
            7 => Some(Self::Switch),
            8 => Some(Self::Dropped(number)),
            _ => None,
        }
    }
}

/// The XOR of the eight pairs of bytes. It changes with every single byte, so a frame with one
/// damaged byte is always rejected.
pub(super) fn parity(whole: u128) -> u16 {
    let half = whole as u64 ^ (whole >> 64) as u64;
    let quarter = half as u32 ^ (half >> 32) as u32;
    quarter as u16 ^ (quarter >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none(first in 0..10u8, bytes: [u8; HEAD]) {
            let mut bytes = bytes;
            bytes[0] = first;
            bytes[2..4].fill(0);
            let check = parity(u128::from_le_bytes(bytes)).to_le_bytes();
            bytes[2..4].copy_from_slice(&check);
            if let Some(frame) = Frame::from_bytes(bytes) {
                prop_assert_eq!(Frame::from_bytes(frame.to_bytes()), Some(frame));
            }
        }
    }

    #[test]
    fn every_frame_is_read_as_it_was_written() {
        let written = |frame: Frame| Frame::from_bytes(frame.to_bytes());
        for (nth, kind) in DataType::ALL.into_iter().enumerate() {
            let envelope = Envelope { tag: u32::MAX - nth as u32, kind, bytes: nth << 40 };
            for frame in [Frame::Eager(envelope), Frame::ReadyToSend(envelope)] {
                assert_eq!(written(frame), Some(frame));
            }
        }
        let clear_to_send = Frame::ClearToSend(u64::MAX);
        let of_receiver = [clear_to_send, Frame::Credit(0), Frame::Dropped(5)];
        for frame in [Frame::Data(7), Frame::Offer(9), Frame::Switch].into_iter().chain(of_receiver)
        {
            assert_eq!(written(frame), Some(frame));
        }
    }

    #[test]
    fn other_bytes_are_not_a_frame() {
        let mut bytes = [0; HEAD];
        assert_eq!(Frame::from_bytes(bytes), None);
        bytes[0] = 1;
        bytes[1] = DataType::ALL.len() as u8;
        let check = parity(u128::from_le_bytes(bytes)).to_le_bytes();
        bytes[2..4].copy_from_slice(&check);
        assert_eq!(Frame::from_bytes(bytes), None);
    }

    #[test]
    fn a_frame_with_any_damaged_byte_is_refused() {
        let envelope = Envelope { tag: 7, kind: DataType::F32, bytes: 4096 };
        for frame in [Frame::Eager(envelope), Frame::ClearToSend(9), Frame::Credit(16 << 10)] {
            let whole = frame.to_bytes();
            for at in 0..HEAD {
                for bits in 1..=255 {
                    let mut damaged = whole;
                    damaged[at] ^= bits;
                    assert_eq!(Frame::from_bytes(damaged), None, "byte {at} of {frame:?}");
                }
            }
        }
    }
}
