//! The trainer examined: every axis compared with one process and with theory, deliberate mistakes,
//! experts that move, and ranks that die.
//!
//! All of it enters a [`Trainer`](maypole_trainer::train::trainer::Trainer) by the trainer's public
//! parts. The trainer names none of it.
//!
//! | file | contents |
//! |---|---|
//! | [`against`] | compares a run with one process: the first step and tensor that differ |
//! | [`apart`] | the algorithms of [`averaging`] in one process, to compare with |
//! | [`averaging`] | ranks that train apart for a while: local SGD, DiLoCo, gossip, stale sums |
//! | [`unequal`] | rows by the measured speed of ranks, layers by the cost of stages |
//! | [`compare`] | trains on ranks and in one process, and compares both |
//! | [`theory`], [`memory`], [`held`] | the bytes that a rank should send and hold |
//! | [`overlap`] | the passes that run while a collective of the store is in flight |
//! | [`combine`] | the pairs of axes that combine |
//! | [`replicas`] | data parallelism alone, compared with one process that adds in its order |
//! | [`replay`] | the passes of a pipeline: simulated and measured |
//! | [`placement`], [`rebalance`] | experts that move between ranks by measured load |
//! | [`mistakes`] | deliberate mistakes, planted in the parts of a rank |
//! | [`survivors`] | a rank dies, and the others continue without it |
//! | [`report`] | text and pictures of a run |
//! | [`export`] | the weights of a checkpoint as tensors by name, for other tools |
//! | [`tour`] | `train tour`: compares every axis with one process, one row each |
//! | [`mod@bench`] | the speed of one rank, compared with its matrix products alone |
#![forbid(unsafe_code)]

pub mod against;
pub mod apart;
pub mod averaging;
pub mod bench;
pub mod combine;
pub mod compare;
pub mod export;
pub mod held;
pub mod memory;
pub mod mistakes;
pub mod overlap;
pub mod placement;
pub mod rebalance;
pub mod replay;
pub mod replicas;
pub mod report;
pub mod survivors;
pub mod theory;
pub mod tour;
pub mod unequal;
