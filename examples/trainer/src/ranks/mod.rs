//! Ranks: the groups along each axis, the mesh of all axes, and the traffic and waits of a rank.
//!
//! | file | contents |
//! |---|---|
//! | [`group`], [`exchange`] | the collectives of a step: all-reduce, reduce-scatter, all-gather; all-to-all, shift |
//! | [`mesh`] | the coordinates of each rank on the five axes, and the group of each axis |
//! | [`memory`] | the kinds of memory that are allocated and freed within a step |
//! | [`shard`] | one rank's part of something that is divided evenly |
//! | [`traffic`] | bytes that a rank sends, by group |
//! | [`timeline`] | spans of one rank's activities |

pub mod exchange;
pub mod group;
pub mod memory;
pub mod mesh;
pub mod shard;
pub mod timeline;
pub mod traffic;
