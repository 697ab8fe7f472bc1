//! Which cores the calling thread may run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Binds the calling thread, and the threads that it starts later, to one core: the `nth` core that
/// it may run on now, modulo their number. Returns the number of the core.
///
/// Count the cores before this call: afterwards the affinity mask holds one core.
///
/// ```
/// std::thread::spawn(|| {
///     let core = maypole_transports::affinity::bind(0).unwrap();
///     let again = maypole_transports::affinity::bind(7).unwrap();
///     assert_eq!(again, core, "only one core is allowed now");
/// });
/// ```
///
/// # Errors
/// What the kernel reports, for instance if a sandbox forbids the call.
pub fn bind(nth: usize) -> io::Result<usize> {
    let (core, mask) = choose(nth)?;
    sched_setaffinity(None, &mask)?;
    Ok(core)
}

/// Runs `work` with the calling thread bound as by [`bind`], and restores its affinity mask.
/// Threads and processes that `work` starts stay bound.
///
/// ```
/// use maypole_transports::affinity::run_bound;
/// let output = run_bound(0, || std::process::Command::new("nproc").output())?;
/// # if let Ok(output) = output {
/// assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`bind`], before `work` has run.
pub fn run_bound<R>(nth: usize, work: impl FnOnce() -> R) -> io::Result<R> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &choose(nth)?.1)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// Returns the `nth` allowed core, modulo their number, and the mask of that core alone.
fn choose(nth: usize) -> io::Result<(usize, CpuSet)> {
    let cores = allowed()?;
    let core = *cores
        .get(nth % cores.len().max(1))
        .ok_or_else(|| io::Error::other("no core is allowed"))?;
    let mut one = CpuSet::new();
    one.set(core);
    Ok((core, one))
}

/// Returns the cores that the calling thread may run on, ascending.
///
/// # Errors
/// What the kernel reports, for instance if a sandbox forbids the call.
pub fn allowed() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}
