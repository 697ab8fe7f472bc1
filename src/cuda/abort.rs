//! Aborting a rank's calls, from any thread.

use maypole_transports::cuda::ReportWords;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Aborts this rank's part in a group on GPUs: see
/// [`Comm::abort_handle`](super::Comm::abort_handle).
#[derive(Clone, Debug)]
pub struct LocalAbortHandle {
    pub(super) words: Arc<ReportWords>,
    pub(super) aborted: Arc<AtomicBool>,
}

impl LocalAbortHandle {
    /// Ends this rank's waiting kernels and those that it starts later. Takes no lock, does not
    /// block, and needs no other rank. Data that the calls have already written stays.
    ///
    /// The others learn of it when the [`Comm`](super::Comm) is dropped, which then takes at most 2 s: those that still
    /// wait for this rank get an error, those that do not get none.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.words.abort();
    }
}
