//! InfiniBand and RoCE, by verbs.
//!
//! An adapter moves bytes between the memories of two processes without their processors. A program
//! registers memory with it, makes a *queue pair* for each connection, and posts *requests*; the
//! adapter reports each as done in a *completion queue*. This module has one use of that: a
//! [`VerbsStream`], which keeps the contract of every [stream](crate::stream).
//!
//! | file | contents |
//! |---|---|
//! | `abi` | structures and constants of libibverbs |
//! | `library` | the library, opened at run time: building needs none of it, and a machine without it runs the same program |
//! | `device` | the devices of this machine, their ports, and their faults |
//! | `gid` | a port's addresses, and which of them is used |
//! | `candidates` | the ports that connections may use, the best one first |
//! | `adapter` | a port that was opened, and registered memory |
//! | `queue_pair` | a reliable connection and its completions |
//! | `events` | ports that go down, queues that the adapter aborts, and devices that are removed |
//! | `endpoint` | addresses that two ends exchange before they connect |
//! | `connecting` | the two ends before both are connected |
//! | `immediate` | the immediate data of writes |
//! | `flow` | bytes and writes in flight on a connection, and its credits |
//! | `stream` | rings of bytes over a reliable connection |
//! | `direct` | writes past the rings, from registered memory to that of the peer |
//!
//! Sources: the *InfiniBand Architecture Specification*, volume 1, chapters 9 and 10; the manual
//! pages of rdma-core.

mod abi;
mod adapter;
mod candidates;
mod connecting;
mod device;
mod direct;
mod endpoint;
mod error;
mod events;
mod flow;
mod flush;
mod gid;
mod immediate;
mod library;
mod queue_pair;
mod stream;

pub use adapter::{VerbsAdapter, VerbsSettings};
pub use candidates::VerbsCandidate;
pub use connecting::{ConnectedVerbs, UnconnectedVerbs};
pub use device::{VerbsDevice, VerbsPort, devices, has_device_files};
pub use endpoint::VerbsEndpoint;
pub use error::VerbsError;
pub use gid::{Gid, GidKind};
pub use stream::VerbsStream;

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines without devices are those that most programs run on.
    #[test]
    fn a_machine_without_devices_says_what_it_lacks() {
        if has_device_files() {
            return;
        }
        for error in [devices().err(), VerbsAdapter::open(VerbsSettings::default()).err()] {
            let error = error.expect("there are no devices");
            let text = error.to_string();
            let remedies =
                ["install libibverbs1", "install rdma-core", "load ib_uverbs", "'rdma link' shows"];
            assert!(remedies.iter().any(|remedy| text.contains(remedy)), "{text}");
        }
    }
}
