//! Machines and clusters as graphs: the rings and trees on them, and the predicted times of
//! collectives.
//!
//! The library chooses by its own measurements and by the links of the GPUs of one host. This crate
//! is about absent machines: a machine whose description was pasted, or a cluster that has yet to
//! be bought. The graph itself, [`Topology`](maypole::topology::Topology), is the library's.
//!
//! | module | contents |
//! |---|---|
//! | [`rates`] | the bandwidths of the parts of a host, and of networks |
//! | [`read`] | parsers: `nvidia-smi topo -m`, NCCL's XML, `rocm-smi`, `amd-smi` |
//! | [`build`] | graphs from such descriptions, from classes of pairs, and of common clusters |
//! | [`search`] | edge-disjoint rings, rails, lanes and trees on a graph |
//! | [`predict`] | the time of a collective on a graph, and the link that limits its bandwidth |
//! | [`proof`] | schedules of thousands of ranks, proved by that of one |
//! | [`picture`] | a graph and its rings as SVG |
#![forbid(unsafe_code)]

pub mod build;
pub mod picture;
pub mod predict;
pub mod proof;
pub mod rates;
pub mod read;
pub mod search;

pub use read::description::Description;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct ClusterReadme;
