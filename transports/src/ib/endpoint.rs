//! The addresses that the two ends of a connection exchange before they connect.

use super::error::VerbsError;
use super::queue_pair::QueuePairAddress;
use bytemuck::{Pod, Zeroable};

/// The address of an end: its queue pair and its ring.
///
/// Its holder can write into the ring, so it travels over authenticated connections only.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct VerbsEndpoint {
    /// The address of the ring that the peer writes into.
    pub(super) ring: u64,
    /// The key of that memory.
    pub(super) key: u32,
    pub(super) pair: QueuePairAddress,
}

impl VerbsEndpoint {
    /// The bytes that [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        bytemuck::bytes_of(self).to_vec()
    }

    /// Reads an endpoint.
    ///
    /// # Errors
    /// [`VerbsError`] if the bytes are of another length, or of no path MTU.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VerbsError> {
        let read = bytemuck::try_pod_read_unaligned::<Self>(bytes).ok();
        let is_known = |it: &Self| (1..=5).contains(&it.pair.mtu_code);
        let count = bytes.len();
        read.filter(is_known).ok_or_else(|| {
            let text = format!("the peer's {count} bytes are no verbs endpoint of this version");
            VerbsError::Unusable(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> VerbsEndpoint {
        let pair = QueuePairAddress {
            gid: std::array::from_fn(|at| at as u8),
            number: 0x12_3456,
            first_packet: 0xFE_DCBA,
            lid: 777,
            mtu_code: 5,
        };
        VerbsEndpoint { ring: 0x7FFF_1234_5678_9ABC, key: 0xCAFE_F00D, pair }
    }

    #[test]
    fn an_endpoint_comes_back() {
        assert_eq!(VerbsEndpoint::from_bytes(&endpoint().to_bytes()).unwrap(), endpoint());
    }

    #[test]
    fn bytes_of_another_form_are_refused() {
        let bytes = endpoint().to_bytes();
        for len in (0..bytes.len()).chain([bytes.len() + 1]) {
            let mut other = bytes.clone();
            other.resize(len, 0);
            assert!(VerbsEndpoint::from_bytes(&other).is_err(), "{len} bytes");
        }
        let refused = |other: VerbsEndpoint| VerbsEndpoint::from_bytes(&other.to_bytes()).is_err();
        for mtu_code in [0, 6] {
            let pair = QueuePairAddress { mtu_code, ..endpoint().pair };
            assert!(refused(VerbsEndpoint { pair, ..endpoint() }), "{mtu_code}");
        }
    }
}
