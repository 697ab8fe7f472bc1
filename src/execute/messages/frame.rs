//! What precedes every message between two ranks, and the words that go back.

use maypole_kernels::DataType;
use maypole_transports::HEAD;

/// What a message says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Label {
    pub(super) tag: u32,
    pub(super) kind: DataType,
    /// How long it is.
    pub(super) bytes: usize,
}

/// One thing that a sender tells its receiver, or the receiver its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Frame {
    /// A message; its bytes follow at once.
    Short(Label),
    /// A message; its bytes stay with the sender until they are granted.
    Long(Label),
    /// The bytes of the message of this number follow.
    Body(u64),
    /// Where shared memory may be brought to: so many bytes follow.
    Door(u64),
    /// Either way: what follows comes through shared memory.
    Turn,
    /// Back: the bytes of the message of this number shall come.
    Grant(u64),
    /// Back: of what waited, so much was taken.
    Taken(u64),
}

impl Frame {
    /// Sixteen bytes: what it is, the element type, the tag, a number; little-endian.
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let (what, kind, tag, number) = match self {
            Self::Short(label) => (1, label.kind as u8, label.tag, label.bytes as u64),
            Self::Long(label) => (2, label.kind as u8, label.tag, label.bytes as u64),
            Self::Body(number) => (3, 0, 0, number),
            Self::Grant(number) => (4, 0, 0, number),
            Self::Taken(room) => (5, 0, 0, room),
            Self::Door(bytes) => (6, 0, 0, bytes),
            Self::Turn => (7, 0, 0, 0),
        };
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1]) = (what, kind);
        bytes[4..8].copy_from_slice(&tag.to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// The reverse; `None` if the bytes are no frame.
    pub(super) fn from_bytes(bytes: [u8; HEAD]) -> Option<Self> {
        let tag = u32::from_le_bytes(bytes[4..8].try_into().expect("4 of 16 bytes"));
        let number = u64::from_le_bytes(bytes[8..].try_into().expect("8 of 16 bytes"));
        let label = || {
            let kind = *DataType::ALL.get(usize::from(bytes[1]))?;
            Some(Label { tag, kind, bytes: usize::try_from(number).ok()? })
        };
        match bytes[0] {
            1 => label().map(Self::Short),
            2 => label().map(Self::Long),
            3 => Some(Self::Body(number)),
            4 => Some(Self::Grant(number)),
            5 => Some(Self::Taken(number)),
            6 => Some(Self::Door(number)),
            7 => Some(Self::Turn),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none(what in 0..9u8, bytes: [u8; HEAD]) {
            let mut bytes = bytes;
            bytes[0] = what;
            if let Some(frame) = Frame::from_bytes(bytes) {
                prop_assert_eq!(Frame::from_bytes(frame.to_bytes()), Some(frame));
            }
        }
    }

    #[test]
    fn frames_survive_the_way() {
        for (nth, kind) in DataType::ALL.into_iter().enumerate() {
            let label = Label { tag: u32::MAX - nth as u32, kind, bytes: nth << 40 };
            for frame in [Frame::Short(label), Frame::Long(label)] {
                assert_eq!(Frame::from_bytes(frame.to_bytes()), Some(frame));
            }
        }
        for frame in
            [Frame::Body(7), Frame::Grant(u64::MAX), Frame::Taken(0), Frame::Door(9), Frame::Turn]
        {
            assert_eq!(Frame::from_bytes(frame.to_bytes()), Some(frame));
        }
    }

    #[test]
    fn what_is_no_frame_is_none() {
        let mut bytes = [0; HEAD];
        assert_eq!(Frame::from_bytes(bytes), None);
        (bytes[0], bytes[1]) = (1, DataType::ALL.len() as u8);
        assert_eq!(Frame::from_bytes(bytes), None);
    }
}
