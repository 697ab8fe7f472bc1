//! A head is 16 bytes, and every 16 bytes are a head.

use maypole_transports::{HEAD, Head};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_a_head_and_come_back(bytes in any::<[u8; HEAD]>()) {
        prop_assert_eq!(Head::from_bytes(bytes).to_bytes(), bytes);
    }
}

#[test]
fn a_head_is_little_endian_with_its_position_first() {
    let head = Head { position: 0x0102, fingerprint: 0x0304 };
    assert_eq!(head.to_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
}
