//! Checks: compare every axis with one process, and its bytes held and sent with theory.
//!
//! | file | what is in it |
//! |---|---|
//! | [`against`] | compares a run with one process: the first step and tensor that differ |
//! | [`apart`] | algorithms whose ranks train apart, in one process |
//! | [`verify`] | the comparison of a data-parallel run with one process |
//! | [`theory`], [`memory`], [`held`] | the bytes that a rank should send and hold |
//! | [`overlap`] | the passes that run while a collective of the store is under way |
//! | [`combine`] | the pairs of axes that combine |
//! | [`tour`] | `train tour`: compares every axis with one process, one row each |
//! | [`mod@bench`] | the speed of one rank, compared with its matrix products alone |

pub mod against;
pub mod apart;
pub mod bench;
pub mod combine;
pub mod held;
pub mod memory;
pub mod overlap;
pub mod theory;
pub mod tour;
pub mod verify;
