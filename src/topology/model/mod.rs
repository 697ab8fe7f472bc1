//! The graph of devices and links.
//!
//! | module | contents |
//! |---|---|
//! | [`class`] | how near two devices are, in the words of `nvidia-smi topo -m` |
//! | [`graph`] | nodes, links, and the paths between nodes |
//! | [`bandwidth`] | the bandwidth of a link, by kind and generation, each figure with its source |

pub mod bandwidth;
pub mod class;
pub mod graph;
