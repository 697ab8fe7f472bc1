//! The hardware between the ranks: devices, the links that join them, and the rings and transports
//! that follow from them.
//!
//! A [`Topology`] is a graph. Its nodes are devices (GPUs, cores, network cards), and the
//! switches, host bridges and NUMA nodes between them. Its links are directed and have a
//! bandwidth. The bandwidth of a path is the bandwidth of its narrowest link. The [`PathClass`] of a
//! path is the class of its worst hop.
//!
//! A topology is plain data. This room builds the one of this machine. The crate `maypole-cluster`
//! reads topologies from the output of tools, builds those of common clusters, and predicts the
//! time of collectives on them.
//!
//! | folder | contents |
//! |---|---|
//! | [`model`] | the graph, the classes of paths, and the bandwidth of each kind of link |
//! | [`system`] | the devices of a machine as trees, and the graph of them |
//! | [`rings`] | the ring whose worst link is best |
//! | [`detect`] | this machine's own description; the one folder that reads files and drivers |
//! | [`transport`] | which transport two ranks use, and why no better one |

pub mod detect;
mod device_links;
pub mod model;
pub mod rings;
pub mod system;
pub mod transport;

pub use device_links::{DeviceLinks, DeviceLinksError, DevicePath};
pub use model::class::PathClass;
pub use model::graph::{Link, LinkKind, Node, NodeKind, Path, Topology};
pub use transport::StreamLinks;
