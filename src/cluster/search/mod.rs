//! Searches on a graph: the orders in which ranks are joined.
//!
//! | module | result |
//! |---|---|
//! | [`disjoint`] | as many rings as direct links allow |
//! | [`rings`] | the ring whose worst link is best |
//! | [`rails`] | the network card of each rank, and the path from any rank to any other |
//! | [`lanes`] | rings to be used concurrently, over all hosts |
//! | [`trees`] | double binary trees over hosts, chains within a host |

pub mod disjoint;
pub mod lanes;
pub mod rails;
pub mod rings;
pub mod trees;
