//! Checks: every axis compared with one process, and with what theory says it holds and sends.
//!
//! | file | what is in it |
//! |---|---|
//! | [`verify`] | the comparison of a data-parallel run with one process |
//! | [`theory`], [`memory`] | bytes that a rank should send and hold |
//! | [`combine`] | which axes go together |
//! | [`tour`] | every axis beside one process, one row each: `train tour` |
//! | [`mod@bench`] | speed of one rank beside its matrix products alone |
//! | [`faults`] | mistakes that are made on purpose |

pub mod bench;
pub mod combine;
pub mod faults;
pub mod memory;
pub mod theory;
pub mod tour;
pub mod verify;
