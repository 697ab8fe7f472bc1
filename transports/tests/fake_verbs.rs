//! Streams by verbs over the fake library of `transports/fake-verbs/`: the contract of every
//! stream, and behaviour of adapters and networks that no machine here has. These tests show
//! nothing of a real adapter's speed.

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
#[path = "../../tests/common/fake_verbs.rs"]
mod library;
#[path = "../../tests/common/skip.rs"]
mod skip;

#[path = "fake_verbs/adapters.rs"]
mod adapters;
#[path = "fake_verbs/direct.rs"]
mod direct;
#[path = "fake_verbs/faults.rs"]
mod faults;
#[path = "fake_verbs/waits.rs"]
mod waits;

use library::{Controls, FakeVerbs};
use maypole_transports::ib::VerbsStream;
use std::sync::OnceLock;

/// The devices of these tests. A test that counts, or changes a device, has one of its own.
const DEVICES: &str = "ib0; roce0 link=2; spin0; sleep0; quiet0; quiet1; flap0; down0; late0; \
    inline0 inline=0; inline32 inline=32; inline64 inline=64; \
    near0; far0 prefix=1; ether0 link=2; \
    direct0; gpu0 unordered=1; gpu1; refusing0; queue0; pair1; pair2; pair3; renamed0 link=2; grown0 link=2";

/// The library in this process. Every test of this program needs it, so where there is no compiler
/// the program ends, after a line with the reason.
fn fake() -> &'static Controls {
    static CONTROLS: OnceLock<Controls> = OnceLock::new();
    CONTROLS.get_or_init(|| match FakeVerbs::get() {
        Some(library) => library.load(DEVICES),
        None => std::process::exit(0),
    })
}

/// Both ends of a connection between two devices.
fn pair_between(near: &str, far: &str) -> (VerbsStream, VerbsStream) {
    fake();
    drive::verbs_pair(near, far)
}

fn pair_on(device: &str) -> (VerbsStream, VerbsStream) {
    pair_between(device, device)
}

mount!(infiniband, largest: 1 << 20, crate::pair_on("ib0"));
mount!(roce, largest: 1 << 20, crate::pair_on("roce0"));
mount!(encrypted, largest: 1 << 20, crate::drive::encrypted(crate::pair_on("ib0")));
