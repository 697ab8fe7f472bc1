//! The contract of streams, kept by verbs between two RDMA devices.
//!
//! `cargo test` leaves this program out, because it needs devices called `rxe0` and `rxe1`.
//! `tests/rdma-vm/test` runs it in a virtual machine that has them.

#![cfg(target_os = "linux")]
#![allow(clippy::duplicate_mod, reason = "the same tests run over every transport")]
#![allow(dead_code, reason = "not every mount uses all of it")]

#[macro_use]
#[path = "contract/mount.rs"]
mod mount;
#[path = "contract/direct.rs"]
mod direct_pair;
#[path = "contract/drive.rs"]
mod drive;

/// Both ends of a connection between the two soft-RoCE devices of the virtual machine.
fn verbs_pair() -> (maypole_transports::ib::VerbsStream, maypole_transports::ib::VerbsStream) {
    drive::verbs_pair("rxe0", "rxe1")
}

mount!(verbs, largest: 1 << 20, crate::verbs_pair());
mount!(encrypted_verbs, largest: 1 << 20, crate::drive::encrypted(crate::verbs_pair()));

#[test]
fn a_message_arrives_behind_the_bytes_that_were_written_before() {
    direct_pair::DirectPair::new(verbs_pair()).check_order();
}
