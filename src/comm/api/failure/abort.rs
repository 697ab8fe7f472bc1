//! Aborting a group from any thread.

use crate::comm::Communicator;
use crate::control::Control;
use std::sync::{Arc, Weak};

/// Aborts a communicator from another thread: see [`Communicator::abort_handle`].
///
/// The handle does not keep the communicator. After the communicator has been dropped, aborting
/// does nothing.
#[derive(Clone, Debug)]
pub struct AbortHandle(Weak<dyn Control>);

impl AbortHandle {
    /// Aborts the communicator, on all ranks, for the reason `why`. All calls and requests that
    /// wait, on every rank, return [`Error::Aborted`](crate::Error::Aborted), which names this rank
    /// and the reason; later calls fail. Groups that were split from the same world fail with it.
    ///
    /// Returns within 2 s in any state of the other ranks, and whether or not this communicator is
    /// in a call. After that this process may end: all reachable ranks have been notified. If the
    /// communicator has failed already, the first cause stays.
    pub fn abort(&self, why: &str) {
        if let Some(control) = self.0.upgrade() {
            control.abort(why);
        }
    }
}

impl Communicator {
    /// Returns a handle by which any thread can abort this communicator, also while a call of this
    /// rank waits.
    ///
    /// ```
    /// use maypole::{Communicator, Error};
    /// // Rank 1 never calls, and a thread of rank 0 loses patience.
    /// let mut comms = Communicator::local(2);
    /// let handle = comms[0].abort_handle();
    /// let error = std::thread::scope(|threads| {
    ///     threads.spawn(|| handle.abort("the user pressed a key"));
    ///     comms[0].barrier().unwrap_err()
    /// });
    /// assert!(matches!(&error, Error::Aborted { cause, .. } if cause.culprit == Some(0)), "{error}");
    /// assert!(error.to_string().ends_with("rank 0 aborted: the user pressed a key"), "{error}");
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(Arc::downgrade(&self.engine.messages.control))
    }

    /// Aborts this communicator on all ranks, for the reason `why`: see [`AbortHandle::abort`].
    #[doc(alias("MPI_Abort", "ncclCommAbort"))]
    pub fn abort(&self, why: &str) {
        self.abort_handle().abort(why);
    }
}
