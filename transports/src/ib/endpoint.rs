//! What the two ends of a connection tell each other before they connect.

use super::error::VerbsError;
use super::queue_pair::QueuePairAddress;

/// Bytes of a [`VerbsEndpoint`].
const ENDPOINT: usize = 40;
/// The first byte of an endpoint: the version of its form.
const VERSION: u8 = 1;

/// What a peer needs to connect to an end: where its queue pair and its ring are.
///
/// Whoever has it can write into the ring, so it travels over authenticated connections only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VerbsEndpoint {
    pub(super) pair: QueuePairAddress,
    /// The address of the ring that the peer writes into.
    pub(super) ring: u64,
    /// The key of that memory.
    pub(super) key: u32,
}

impl VerbsEndpoint {
    /// The bytes that [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> [u8; ENDPOINT] {
        let mut bytes = [0; ENDPOINT];
        bytes[0] = VERSION;
        bytes[1] = self.pair.mtu_code;
        bytes[2..4].copy_from_slice(&self.pair.lid.to_le_bytes());
        // A number of a queue pair or a packet has 24 bits.
        bytes[4..7].copy_from_slice(&self.pair.number.to_le_bytes()[..3]);
        bytes[7..10].copy_from_slice(&self.pair.first_packet.to_le_bytes()[..3]);
        bytes[10..26].copy_from_slice(&self.pair.gid);
        bytes[26..34].copy_from_slice(&self.ring.to_le_bytes());
        bytes[34..38].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Reads an endpoint.
    ///
    /// # Errors
    /// [`VerbsError::Endpoint`] if the bytes are of another length or version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VerbsError> {
        let unknown = || VerbsError::Endpoint { bytes: bytes.len() };
        let bytes: &[u8; ENDPOINT] = bytes.try_into().map_err(|_| unknown())?;
        if bytes[0] != VERSION || !(1..=5).contains(&bytes[1]) {
            return Err(unknown());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[10..26]);
        let mut ring = [0; 8];
        ring.copy_from_slice(&bytes[26..34]);
        let mut key = [0; 4];
        key.copy_from_slice(&bytes[34..38]);
        Ok(Self {
            pair: QueuePairAddress {
                number: word(4),
                first_packet: word(7),
                lid: u16::from_le_bytes([bytes[2], bytes[3]]),
                mtu_code: bytes[1],
                gid,
            },
            ring: u64::from_le_bytes(ring),
            key: u32::from_le_bytes(key),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> VerbsEndpoint {
        let pair = QueuePairAddress {
            number: 0x12_3456,
            first_packet: 0xFE_DCBA,
            lid: 777,
            mtu_code: 5,
            gid: std::array::from_fn(|at| at as u8),
        };
        VerbsEndpoint { pair, ring: 0x7FFF_1234_5678_9ABC, key: 0xCAFE_F00D }
    }

    #[test]
    fn an_endpoint_comes_back() {
        assert_eq!(VerbsEndpoint::from_bytes(&endpoint().to_bytes()).unwrap(), endpoint());
    }

    #[test]
    fn bytes_of_another_form_are_refused() {
        let bytes = endpoint().to_bytes();
        for len in (0..ENDPOINT).chain([ENDPOINT + 1]) {
            let mut other = bytes.to_vec();
            other.resize(len, 0);
            assert!(VerbsEndpoint::from_bytes(&other).is_err(), "{len} bytes");
        }
        for (at, value) in [(0, VERSION + 1), (1, 0), (1, 6)] {
            let mut other = bytes;
            other[at] = value;
            assert!(VerbsEndpoint::from_bytes(&other).is_err(), "byte {at} is {value}");
        }
    }
}
