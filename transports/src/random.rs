//! Random bytes from the operating system, for keys and session numbers.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the operating system's cryptographic random source.
///
/// # Errors
///
/// Only where the system has no such source (a kernel before 3.17, or a filter that forbids the
/// call).
///
/// # Examples
///
/// ```
/// let (mut a, mut b) = ([0; 32], [0; 32]);
/// maypole_transports::random::fill(&mut a)?;
/// maypole_transports::random::fill(&mut b)?;
/// assert_ne!(a, b);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
