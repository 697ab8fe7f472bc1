//! The hardware between the ranks: devices, the links that join them, and the rings, transports and
//! predictions that follow from their bandwidths.
//!
//! A [`Topology`] is a graph. Its nodes are devices (GPUs, cores, network cards), and the
//! switches, host bridges and NUMA nodes between them. Its links are directed and have a
//! bandwidth. A topology is plain data: it is read from this machine, read from the output of a
//! tool, or built from a name. The bandwidth of a path is the bandwidth of its narrowest link. The
//! [`PathClass`] of a path is the class of its worst hop.
//!
//! | folder | what it has |
//! |---|---|
//! | [`model`] | the graph, the classes of paths, and the bandwidth of each kind of link |
//! | [`read`] | parsers: `nvidia-smi topo -m`, NCCL's XML, `rocm-smi`, `amd-smi` |
//! | [`build`] | graphs from such descriptions, from classes of pairs, and of well-known clusters |
//! | [`search`] | rings, edge-disjoint rings, rails, lanes and trees on a graph |
//! | [`predict`] | how long a collective takes on a graph, and which link limits it |
//! | [`picture`] | a graph and its rings as SVG |
//! | [`detect`] | this machine's own description; the one folder that reads files and drivers |
//! | [`transport`] | which transport two ranks use, and why no better one |

pub mod build;
pub mod detect;
mod device_links;
pub mod model;
pub mod picture;
pub mod predict;
pub mod read;
pub mod search;
mod stream_links;
pub mod transport;

pub use device_links::{DeviceLinks, DeviceLinksError, DevicePath};
pub use model::class::PathClass;
pub use model::graph::{Link, LinkKind, Node, NodeKind, Path, Topology};
pub use read::description::Description;
pub use stream_links::StreamLinks;
