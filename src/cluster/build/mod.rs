//! Graphs that are built rather than detected.
//!
//! | module | source of the graph |
//! |---|---|
//! | [`cluster`] | the name of a common host, or several of any host on a network |
//! | [`pairs`] | the class of the path between each pair of devices |
//! | [`convert`] | a description that a parser has read |
//! | [`link`] | another graph, of which one link has another bandwidth; links in words |
//! | [`offers`] | which transport two ranks would use |

pub mod cluster;
pub mod convert;
pub mod link;
pub mod offers;
pub mod pairs;
