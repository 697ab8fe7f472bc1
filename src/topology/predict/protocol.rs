//! What a message costs besides its bytes, for each way in which libraries move them.
//!
//! On GPUs these are NCCL's three protocols with the figures of its tuner (`src/graph/tuning.cc`,
//! version 2.30, rows of the ring): a flag with every 4 bytes, with every 120 bytes, or none, and
//! fences instead. On CPUs it is a flag in shared memory (0.13 us a hop on the machine that this
//! library was measured on) and a TCP connection between hosts.

use crate::topology::model::class::PathClass;
use crate::topology::model::graph::{NodeKind, Path, Topology};

/// A way to move bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireProtocol {
    /// What it is called.
    pub name: &'static str,
    /// Seconds that any collective takes besides its messages.
    pub base: f64,
    /// Seconds a message is under way over direct links between GPUs.
    pub direct: f64,
    /// Seconds a message is under way within a host otherwise.
    pub host: f64,
    /// Seconds a message is under way between hosts.
    pub network: f64,
    /// How much of a link's bandwidth is payload.
    pub share: f64,
}

/// How many there are, at most, on any topology.
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

/// Those that the ranks of `topology` have.
pub fn protocols(topology: &Topology) -> &'static [WireProtocol] {
    if topology.nodes_of(NodeKind::Gpu).is_empty() { &CPU } else { &GPU }
}

impl WireProtocol {
    /// Seconds that a message is under way along `path`.
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
