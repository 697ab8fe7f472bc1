//! Maypole.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod bootstrap;
#[cfg(target_os = "linux")]
pub mod service;
