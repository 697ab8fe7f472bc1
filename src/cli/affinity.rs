//! The affinity of threads and processes to cores.

pub(crate) use maypole_transports::cores::allowed;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Binds the calling thread, and the threads that it starts later, to one core: the `nth` core that
/// it may run on now, modulo their number. Returns the number of the core.
///
/// Count the cores before this call: afterwards the affinity mask holds one core.
///
/// # Errors
/// Errors of the kernel, for instance if a sandbox forbids the call.
pub(crate) fn bind(nth: usize) -> io::Result<usize> {
    let core = in_turn(&allowed()?, nth)?;
    sched_setaffinity(None, &mask(&[core]))?;
    Ok(core)
}

/// Returns the cores of process `nth` of `processes` that divide the calling thread's cores: equal
/// parts of neighbouring cores, or one core each in turn if there are fewer cores than processes.
///
/// # Errors
/// Errors of the kernel, for instance if a sandbox forbids the call.
pub(crate) fn share(nth: usize, processes: usize) -> io::Result<Vec<usize>> {
    let cores = allowed()?;
    if processes > cores.len() {
        return Ok(vec![in_turn(&cores, nth)?]);
    }
    let start = |nth: usize| nth * cores.len() / processes;
    Ok(cores[start(nth)..start(nth + 1)].to_vec())
}

/// Runs `work` with the calling thread bound to `cores`, and restores its affinity mask.
/// Threads and processes that `work` starts stay bound.
///
/// # Errors
/// As [`bind`], before `work` has run.
pub(crate) fn run_bound<R>(cores: &[usize], work: impl FnOnce() -> R) -> io::Result<R> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &mask(cores))?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

fn in_turn(cores: &[usize], nth: usize) -> io::Result<usize> {
    let core = cores.get(nth % cores.len().max(1));
    core.copied().ok_or_else(|| io::Error::other("no core is allowed"))
}

fn mask(cores: &[usize]) -> CpuSet {
    let mut mask = CpuSet::new();
    cores.iter().for_each(|core| mask.set(*core));
    mask
}
