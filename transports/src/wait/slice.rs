//! Short time slices for threads that wait.
//!
//! A yield forfeits the rest of the slice, 3 ms by default: beside programs that compute, each step
//! of a call takes so long. A thread with short slices has the same share of the core, in earlier
//! and shorter turns (EEVDF: Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First",
//! 1995). Linux takes the length of a slice from `sched_setattr` since 6.12, and ignores it before.

use std::cell::Cell;

/// The shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;

thread_local! {
    static IS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Asks for short slices for this thread, once. A thread that has shorter ones, or another policy
/// than `SCHED_OTHER`, keeps what it has, and so does one whose system forbids the call.
pub(super) fn shorten() {
    if !IS_ASKED.replace(true) {
        let slice = slice_of_this_thread().filter(|it| it.sched_runtime > SLICE_NS);
        if let Some(known) = slice {
            set(libc::sched_attr { sched_runtime: SLICE_NS, ..known });
        }
    }
}

/// `None` for another policy, and where the system does not tell.
fn slice_of_this_thread() -> Option<libc::sched_attr> {
    // SAFETY: all bytes zero are a value.
    let mut told: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&told) as u32;
    // SAFETY: the system writes at most `bytes` bytes.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut told, bytes, 0) };
    (failed == 0 && told.sched_policy == libc::SCHED_OTHER as u32).then_some(told)
}

fn set(mut wanted: libc::sched_attr) {
    wanted.size = size_of_val(&wanted) as u32;
    // SAFETY: the system reads `size` bytes.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_has_short_slices_and_keeps_its_priority() {
        let Some(before) = slice_of_this_thread() else { return };
        shorten();
        let after = slice_of_this_thread().expect("it was told before");
        assert_eq!(after.sched_nice, before.sched_nice);
        // Before Linux 6.12 the system tells 0.
        assert!(after.sched_runtime <= SLICE_NS, "{} ns", after.sched_runtime);
    }

    #[test]
    fn a_thread_of_another_policy_keeps_its_slices() {
        let batch = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters are valid.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const batch) }, 0);
        assert!(slice_of_this_thread().is_none());
    }
}
