//! Communicators over InfiniBand and RoCE.
//!
//! The tests that need RDMA devices are ignored here, and run in a virtual machine that has two:
//! `tests/rdma-vm/test`. Those of `fake` run over the library of `transports/fake-verbs/`, whose devices
//! a test sets. The others test the errors of a machine without devices. `TEST_FULL=1` runs every
//! size with every collective.

mod devices;
mod failures;
mod fake;
#[path = "../common/fake_verbs.rs"]
mod fake_verbs;
mod refusals;
mod roles;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

use maypole_tests::{case, common};

spawn::rank_processes!(roles);
