//! The latency of a message, by the protocol that moves it.
//!
//! On GPUs these are NCCL's three protocols, with the figures of its tuner (`src/graph/tuning.cc`,
//! version 2.30, rows of the ring). LL sends a flag with every 4 bytes, LL128 with every 120
//! bytes, and Simple sends no flags but uses fences. On CPUs it is a flag in shared memory, 0.13
//! us a hop on the machine where this library was measured, and a TCP connection between hosts.

use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::{NodeKind, Path, Topology};

/// A protocol that moves messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireProtocol {
    /// The name of the protocol.
    pub name: &'static str,
    /// The fixed time of a collective, in seconds.
    pub base: f64,
    /// The latency of a message over direct links between GPUs, in seconds.
    pub direct: f64,
    /// The latency of any other message within a host, in seconds.
    pub host: f64,
    /// The latency of a message between hosts, in seconds.
    pub network: f64,
    /// The part of a link's bandwidth that carries payload.
    pub share: f64,
}

/// The largest number of protocols on any topology.
pub const MOST: usize = 3;

const GPU: [WireProtocol; MOST] = [
    WireProtocol {
        name: "LL",
        base: 6.6e-6,
        direct: 0.6e-6,
        host: 1.0e-6,
        network: 2.7e-6,
        share: 0.5,
    },
    WireProtocol {
        name: "LL128",
        base: 14.0e-6,
        direct: 1.9e-6,
        host: 2.5e-6,
        network: 4.0e-6,
        share: 0.92,
    },
    WireProtocol {
        name: "Simple",
        base: 8.4e-6,
        direct: 3.4e-6,
        host: 5.7e-6,
        network: 14.0e-6,
        share: 1.0,
    },
];

const CPU: [WireProtocol; 1] = [WireProtocol {
    name: "flags",
    base: 0.0,
    direct: 0.13e-6,
    host: 0.13e-6,
    network: 20e-6,
    share: 1.0,
}];

/// Returns the protocols that the ranks of `topology` have.
pub fn protocols(topology: &Topology) -> &'static [WireProtocol] {
    if topology.nodes_of(NodeKind::Gpu).is_empty() { &CPU } else { &GPU }
}

impl WireProtocol {
    /// Returns the latency of a message along `path`, in seconds.
    pub fn latency(&self, path: &Path) -> f64 {
        match path.class {
            PathClass::Same | PathClass::NvLink(_) | PathClass::Xgmi(_) => self.direct,
            PathClass::Pix | PathClass::Pxb | PathClass::Phb | PathClass::Node | PathClass::Sys => {
                self.host
            }
            PathClass::Net => self.network,
        }
    }
}
