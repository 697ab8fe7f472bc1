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
#[path = "contract/drive.rs"]
mod drive;

use maypole_transports::ib::{
    UnconnectedVerbs, VerbsAdapter, VerbsEndpoint, VerbsSettings, VerbsStream,
};

/// Both ends of a connection between the two soft-RoCE devices of the virtual machine.
fn verbs_pair() -> (VerbsStream, VerbsStream) {
    let end = |name: &str| {
        let settings = VerbsSettings { device: Some(name.to_owned()), ..VerbsSettings::default() };
        UnconnectedVerbs::new(&VerbsAdapter::open(settings).unwrap()).unwrap()
    };
    let (near, far) = (end("rxe0"), end("rxe1"));
    let [to_near, to_far] = [&near, &far].map(|end| {
        // As a control connection carries it.
        VerbsEndpoint::from_bytes(&end.endpoint().to_bytes()).unwrap()
    });
    let (near, far) = (near.connect(&to_far).unwrap(), far.connect(&to_near).unwrap());
    (near.open(), far.open())
}

mount!(verbs, largest: 1 << 20, crate::verbs_pair());
mount!(encrypted_verbs, largest: 1 << 20, crate::drive::encrypted(crate::verbs_pair()));
