//! The 32-bit immediate data of writes: the kind of a write, for its receiver.
//!
//! The two highest bits are the kind. A write of data has its length in the others. A credit has
//! the number of bytes that the receiver has taken from the ring, and how many of the requests that
//! took its peer's numbers it has posted again.

/// The kind of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Immediate {
    /// So many bytes follow those that came before, in the ring.
    Data {
        /// Their number.
        bytes: u32,
    },
    /// The receiver has taken bytes and writes of its peer.
    Credit {
        /// Bytes that it took out of the ring.
        bytes: u32,
        /// Writes whose receives it has posted again.
        writes: u32,
    },
    /// Nothing more will be sent.
    Finished,
    /// Nothing more will be sent or received.
    Gone,
}

const KIND: u32 = 30;
const WRITES: u32 = 20;

impl Immediate {
    /// The number that encodes it. Bytes are below 2^20, and writes below 2^10.
    pub(super) fn encode(self) -> u32 {
        match self {
            Self::Data { bytes } => bytes,
            Self::Credit { bytes, writes } => 1 << KIND | writes << WRITES | bytes,
            Self::Finished => 2 << KIND,
            Self::Gone => 3 << KIND,
        }
    }

    /// Decodes a number. Every number is valid.
    pub(super) fn decode(number: u32) -> Self {
        let bytes = number & ((1 << WRITES) - 1);
        let writes = (number >> WRITES) & ((1 << (KIND - WRITES)) - 1);
        match number >> KIND {
            0 => Self::Data { bytes: number },
            1 => Self::Credit { bytes, writes },
            2 => Self::Finished,
            _ => Self::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_meaning_comes_back() {
        let most = (1 << WRITES) - 1;
        for meaning in [
            Immediate::Data { bytes: 0 },
            Immediate::Data { bytes: most },
            Immediate::Credit { bytes: most, writes: 0 },
            Immediate::Credit { bytes: 1, writes: 1023 },
            Immediate::Finished,
            Immediate::Gone,
        ] {
            assert_eq!(Immediate::decode(meaning.encode()), meaning);
        }
    }
}
