//! Transports.

pub mod alarm;
#[cfg(target_os = "linux")]
pub mod secure;
#[cfg(target_os = "linux")]
pub mod shm;
#[cfg(target_os = "linux")]
pub mod sockets;
#[cfg(target_os = "linux")]
pub mod watch;

pub use alarm::Alarm;
