//! What lies between the ranks: devices, the links that join them, and what follows from their
//! bandwidths.
//!
//! A [`Topology`] is a graph of devices (GPUs, cores, network cards), of what stands between them
//! (switches, host bridges, NUMA nodes) and of directed links with a bandwidth. It is data: it may
//! be read from a machine, from what a tool printed about one, or be made up. A path is as wide as
//! its narrowest link, and its [`Class`] is that of its worst hop.
//!
//! | module | what it is |
//! |---|---|
//! | [`class`] | how near two devices are, in the words of `nvidia-smi topo -m` |
//! | [`model`] | the graph, its builder and its paths |
//! | [`bandwidth`] | what links carry, by kind and generation, each figure with its source |
//! | [`pairs`] | a host made up from the classes of its pairs |
//! | [`cluster`] | well-known hosts by name, and several of any host on a network |
//! | [`rings`] | the ring whose worst link is best |
//! | [`disjoint`] | as many rings as direct links allow |
//! | [`rails`] | whose network card is whose, and the way from any rank to any other |
//! | [`lanes`] | rings to be used at once, over all hosts |
//! | [`trees`] | double binary trees over hosts, chains within |
//! | [`build`] | from what was found to schedules |
//! | [`predict`] | how long that takes, and which link keeps it from being faster |
//! | [`protocol`] | what a message costs besides its bytes |
//! | [`published`] | what others measured on machines that can be recognised |
//! | [`picture`] | a machine and its rings as SVG |
//! | [`description`] | any of the texts below, told apart by what it contains |
//! | [`matrix`] | what `nvidia-smi topo -m` prints, however it was pasted |
//! | [`xml`] | the topology files of NCCL and RCCL |
//! | [`rocm`] | what `rocm-smi --showtopo` and `amd-smi topology` print |
//! | [`choice`] | which transport two ranks use, and why no better one |
//! | [`convert`] | from each of them to the graph |
//! | [`printed`], [`answers`], [`text`] | a cell, what every description answers, and where it is not understood |

pub mod answers;
pub mod bandwidth;
pub mod build;
pub mod choice;
pub mod class;
pub mod cluster;
pub mod convert;
pub mod description;
pub mod detect;
pub mod disjoint;
pub mod lanes;
mod load;
pub mod matrix;
pub mod model;
pub mod pairs;
pub mod picture;
pub mod predict;
pub mod printed;
pub mod protocol;
pub mod published;
pub mod rails;
pub mod rings;
pub mod rocm;
pub mod text;
pub mod trees;
pub mod xml;

pub use class::Class;
pub use description::Description;
pub use model::{Kind, Link, LinkKind, Node, Path, Topology};
