//! Transports.
pub mod descriptor;
pub mod process;
pub mod random;
