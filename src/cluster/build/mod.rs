//! Graphs that are built rather than detected.
//!
//! | module | what it builds a graph from |
//! |---|---|
//! | [`cluster`] | the name of a well-known host, or several of any host on a network |
//! | [`pairs`] | the class of the path between each pair of devices |
//! | [`convert`] | a description that a parser has read |

pub mod cluster;
pub mod convert;
pub mod pairs;
