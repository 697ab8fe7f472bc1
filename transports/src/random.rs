//! Random bytes from the operating system, for keys and session numbers.

use std::io;

/// Fills `bytes` from the operating system's cryptographic random source.
///
/// # Errors
///
/// If the system has no such source: the kernel is older than 3.17, or a filter forbids the call.
///
/// # Examples
///
/// ```
/// let mut key = [0; 32];
/// maypole_transports::random::fill(&mut key)?;
/// assert_ne!(key, [0; 32]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    Ok(getrandom::fill(bytes)?)
}

/// Returns `N` bytes from the operating system's cryptographic random source.
///
/// # Errors
///
/// As [`fill`].
///
/// # Examples
///
/// ```
/// let session: [u8; 16] = maypole_transports::random::bytes()?;
/// assert_ne!(session, maypole_transports::random::bytes()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}
