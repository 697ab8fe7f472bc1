//! The ranks of a group that still use the memory of others.
//!
//! A word for each rank is in memory of the host that all ranks share, so a rank can read it also
//! after the control plane of the group has ended. The memory of a process that has ended is open
//! in no process.

use super::arena::{Offer, ProcessName};
use super::spares::Openers;
use crate::shm::Segment;
use crate::watch::pidfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// Bytes between two words.
const STRIDE: usize = 64;

/// States of a rank's word, after the initial one: its calls have ended, so it uses no memory of the others any
/// more, and it has also closed that memory.
pub(super) const ENDED: u32 = 1;
pub(super) const CLOSED: u32 = 2;

/// The table of a group.
#[derive(Debug)]
pub struct UseTable {
    segment: Segment,
    me: usize,
    /// By rank: a pidfd of its process, if available.
    processes: Vec<Option<Arc<OwnedFd>>>,
}

impl UseTable {
    /// Bytes of the segment for `ranks` ranks.
    pub fn bytes(ranks: usize) -> usize {
        ranks * STRIDE
    }

    /// The table of the ranks that made `offers`, in a fresh segment that they share.
    ///
    /// # Panics
    /// If the segment is shorter than [`bytes`](Self::bytes).
    pub fn new(segment: Segment, me: usize, offers: &[Offer]) -> Self {
        assert!(segment.len() >= Self::bytes(offers.len()), "the segment has a word for each rank");
        let here = &offers[me];
        let watched = |offer: &Offer| {
            let is_other = offer.process != here.process && offer.namespace == here.namespace;
            is_other.then(|| process(offer.process)).flatten()
        };
        let processes = offers.iter().map(watched).collect();
        Self { segment, me, processes }
    }

    fn word(&self, rank: usize) -> &AtomicU32 {
        let start = self.segment.start().as_ptr();
        // SAFETY: the segment is mapped as long as `self` lives, has a word for each rank, and is used by
        // atomic operations alone. It is aligned to a page.
        unsafe { &*start.add(rank * STRIDE).cast::<AtomicU32>() }
    }

    /// Sets the state of this rank.
    pub(super) fn advance(&self, to: u32) {
        if self.segment.is_mapped() {
            self.word(self.me).fetch_max(to, Ordering::Release);
        }
    }

    /// True if all other ranks have this state or a later one, or their processes have ended.
    pub(super) fn have_come_to(&self, least: u32) -> bool {
        let has = |(rank, process): (usize, &Option<Arc<OwnedFd>>)| {
            rank == self.me
                || self.word(rank).load(Ordering::Acquire) >= least
                || process.as_ref().is_some_and(|process| has_ended(process))
        };
        self.segment.is_mapped() && self.processes.iter().enumerate().all(has)
    }
}

impl Openers for UseTable {
    fn have_closed(&self) -> bool {
        self.have_come_to(CLOSED)
    }
}

/// Descriptors of processes, which the groups of this process share.
static PROCESSES: LazyLock<Mutex<HashMap<ProcessName, Weak<OwnedFd>>>> =
    LazyLock::new(Mutex::default);

/// A descriptor that becomes readable when the process ends. `None` if there is none.
fn process(name: ProcessName) -> Option<Arc<OwnedFd>> {
    let mut known = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, process| process.strong_count() > 0);
    if let Some(process) = known.get(&name).and_then(Weak::upgrade) {
        return Some(process);
    }
    let process = Arc::new(pidfd(name.number()).ok()?);
    known.insert(name, Arc::downgrade(&process));
    Some(process)
}

fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}
