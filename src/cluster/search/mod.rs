//! Searches on a graph: the orders in which ranks are joined. The ring whose worst link is best is
//! that of [`maypole::topology::rings`].
//!
//! | module | result |
//! |---|---|
//! | [`disjoint`] | as many rings as direct links allow |
//! | [`rails`] | the network card of each rank, and the path from any rank to any other |
//! | [`lanes`] | rings to be used concurrently, over all hosts |
//! | [`trees`] | double binary trees over hosts, chains within a host |

pub mod disjoint;
pub mod lanes;
pub mod rails;
pub mod trees;
