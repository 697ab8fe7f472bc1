//! Whether the launcher may have the descriptors that so many ranks need. A job that needs more is
//! refused before its first rank starts, with the limit and the arithmetic.

use anyhow::{Result, ensure};
use maypole_transports::sockets;

/// Descriptors of the launcher for everything but ranks.
const LAUNCHER_DESCRIPTORS: u64 = 64;
/// Descriptors of the launcher for a rank whose output it forwards.
const PIPES: u64 = 2;

/// Checks that `world` ranks can start. Raises the launcher's limit of descriptors if it needs more
/// than the soft limit allows, and returns that limit then: ranks keep it.
///
/// # Errors
///
/// The limit that forbids it, with the arithmetic.
pub(super) fn check(world: usize, tagged: bool) -> Result<Option<u64>> {
    let world = world as u64;
    let soft = sockets::descriptor_limit().unwrap_or(u64::MAX);
    let each = if tagged { PIPES } else { 0 };
    let need = world.saturating_mul(each).saturating_add(LAUNCHER_DESCRIPTORS);
    if need <= soft {
        return Ok(None);
    }
    let hard = sockets::raise_descriptor_limit().unwrap_or(u64::MAX);
    ensure!(
        need <= hard,
        "-n {world} needs {need} descriptors in the launcher ({each} for each rank, and \
         {LAUNCHER_DESCRIPTORS}), but the hard limit is {hard}: raise it with `ulimit -Hn`, or \
         start fewer ranks"
    );
    Ok(Some(soft))
}
