//! Ranks: the groups that an axis joins, the mesh of all axes, and what a rank sends and waits for.
//!
//! | file | what is in it |
//! |---|---|
//! | [`group`], [`exchange`] | the only access to collectives: sums and gathers; exchanges |
//! | [`mesh`] | the coordinates of each rank on the five axes, and the group of each axis |
//! | [`memory`] | the kinds of memory that come and go within a step |
//! | [`shard`] | one rank's part of something that is divided evenly |
//! | [`traffic`] | bytes that a rank sends, by group |
//! | [`timeline`], [`shares`] | spans of computation and communication of one rank; where its time went |

pub mod exchange;
pub mod group;
pub mod memory;
pub mod mesh;
pub mod shard;
pub mod shares;
pub mod timeline;
pub mod traffic;
