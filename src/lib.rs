//! Maypole.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod collective;
pub mod draw;
pub mod schedule;
pub mod simulate;
pub mod verify;
pub mod walk;
