//! Maypole.
pub mod launch;
