//! Machines and clusters as graphs: the rings and trees on them, and how long collectives take there.
//!
//! The library chooses by what it measures and by the links of the GPUs of one host. This crate answers
//! questions about machines that are not here: a machine whose description somebody pasted, or a cluster
//! that has yet to be bought. The graph itself, [`Topology`](maypole::topology::Topology), is the
//! library's.
//!
//! | module | what it has |
//! |---|---|
//! | [`rates`] | the bandwidths of the parts of a host, and of networks |
//! | [`read`] | parsers: `nvidia-smi topo -m`, NCCL's XML, `rocm-smi`, `amd-smi` |
//! | [`build`] | graphs from such descriptions, from classes of pairs, and of well-known clusters |
//! | [`search`] | edge-disjoint rings, rails, lanes and trees on a graph |
//! | [`predict`] | how long a collective takes on a graph, and which link limits it |
//! | [`picture`] | a graph and its rings as SVG |
#![forbid(unsafe_code)]

pub mod build;
pub mod picture;
pub mod predict;
pub mod rates;
pub mod read;
pub mod search;

pub use read::description::Description;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct ClusterReadme;
