//! The first error of a request that no caller has received.

use super::{Health, check_process};
use crate::error::{Error, FirstFailure, Result};
use crate::status::report_failure;
use crate::world::service::{Cause, FailureKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The first error of a rank's requests that were dropped, until a call returns it. All threads that
/// have a request of the rank share it.
#[derive(Debug, Default)]
pub(crate) struct UnreportedError {
    /// Whether there is one, readable without the lock.
    is_set: AtomicBool,
    errors: Mutex<Errors>,
}

#[derive(Debug, Default)]
struct Errors {
    first: Option<Error>,
    /// A caller has received the error of a communicator that has failed. All later failures follow
    /// from that.
    failure_is_known: bool,
}

impl UnreportedError {
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Keeps `error`, which no caller has received, unless there is one already, or a caller has
    /// received the failure that it follows from.
    pub(crate) fn keep(&self, error: Error) {
        self.change(|errors| {
            if errors.first.is_none() && (error.is_harmless() || !errors.failure_is_known) {
                errors.first = Some(error);
            }
        });
    }

    /// Takes the error, for a caller that returns it.
    pub(crate) fn take(&self) -> Option<Error> {
        if !self.is_set() {
            return None;
        }
        self.change(|errors| {
            let taken = errors.first.take()?;
            errors.failure_is_known |= !taken.is_harmless();
            Some(taken)
        })
    }

    /// Records that a caller receives `error`.
    pub(crate) fn note_received(&self, error: &Error) {
        if !error.is_harmless() {
            self.change(|errors| {
                errors.failure_is_known = true;
                errors.first.take_if(|first| !first.is_harmless());
            });
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Errors) -> T) -> T {
        // Every change is whole when a thread can panic.
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut errors);
        self.is_set.store(errors.first.is_some(), Ordering::Release);
        result
    }
}

impl Health {
    /// True if the next call may have to return an error of before.
    #[inline(always)]
    pub(crate) fn is_troubled(&self) -> bool {
        self.is_alarmed() || self.unreported.is_set()
    }

    /// The error of a rank that closes its communicator: that of a request which no call has returned,
    /// or that its calls were not those of the others. Other failures are none of a rank that closes:
    /// its own calls are done.
    pub(crate) fn check_closed(&self) -> Result<()> {
        if let Some(error) = self.unreported.take() {
            return Err(error);
        }
        let unmatched = |cause: &Cause| cause.kind == FailureKind::Mismatch;
        match self.control.cause().filter(unmatched) {
            Some(cause) if !self.has_failed() => {
                let error = self.error_of("close()".to_owned(), cause);
                report_failure(&*self.control, &error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Fails after a failure of the group, after an error of a request that no caller has received,
    /// and in a forked child.
    pub(crate) fn check(&self) -> Result<()> {
        check_process(self.owner, self.rank)?;
        let Some(first) = &self.first_failure else {
            let unreported = (!self.is_in_request).then(|| self.unreported.take()).flatten();
            return unreported.map_or(Ok(()), Err);
        };
        let kind = first.kind().unwrap_or(FailureKind::UserAbort);
        let first = FirstFailure::new(kind, first.culprit(), first.to_string());
        let error = Error::Failed { first };
        self.note_received(&error);
        Err(error)
    }

    /// Records that the caller receives `error`, unless a request does.
    pub(super) fn note_received(&self, error: &Error) {
        if !self.is_in_request {
            self.unreported.note_received(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(why: &str) -> Error {
        Error::Invalid { rank: 0, operation: "scan", why: why.to_owned() }
    }

    fn failed(first: &str) -> Error {
        Error::Failed { first: FirstFailure::new(FailureKind::UserAbort, None, first) }
    }

    #[test]
    fn the_first_error_is_taken_once() {
        let unreported = UnreportedError::default();
        assert!(unreported.take().is_none());
        unreported.keep(invalid("one"));
        unreported.keep(failed("two"));
        assert!(unreported.is_set());
        assert!(unreported.take().unwrap().to_string().contains("one"));
        assert!(!unreported.is_set() && unreported.take().is_none());
    }

    #[test]
    fn what_follows_from_a_known_failure_is_not_kept() {
        let unreported = UnreportedError::default();
        unreported.keep(failed("one"));
        unreported.note_received(&failed("one"));
        assert!(!unreported.is_set());
        unreported.keep(failed("one, again"));
        assert!(unreported.take().is_none());
        unreported.keep(invalid("another"));
        unreported.note_received(&failed("one"));
        assert!(unreported.take().is_some());
    }
}
