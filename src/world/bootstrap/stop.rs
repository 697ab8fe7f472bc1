//! Ending a join from another thread, such as that of a signal.

use super::JoinError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The interval at which a join polls the stop flag.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends a join from another thread: see
/// [`Communicator::from_env_until`](crate::Communicator::from_env_until). Clones end the same join.
///
/// ```
/// use maypole::Communicator;
/// use maypole::world::bootstrap::{JoinConfig, JoinStop};
///
/// let stop = JoinStop::default();
/// let job = format!("stopped {}", std::process::id());
/// let config = JoinConfig::new(0, 2, "127.0.0.1").with_job(&job);
/// std::thread::scope(|threads| {
///     // The other rank never comes.
///     let joining = threads.spawn(|| Communicator::join_by_env_until(config, stop.clone()));
///     stop.stop();
///     let error = joining.join().unwrap().unwrap_err();
///     assert!(error.to_string().contains("was stopped"), "{error}");
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct JoinStop(Arc<AtomicBool>);

/// Stops of the same join are equal.
impl PartialEq for JoinStop {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for JoinStop {}

impl JoinStop {
    /// True once [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Returns an error if the join is to end.
    pub(super) fn check(&self) -> Result<(), JoinError> {
        let stopped = || JoinError::passing("joining was stopped by this process");
        if self.is_stopped() { Err(stopped()) } else { Ok(()) }
    }

    /// The time of the next [`check`](Self::check) in a wait with this `deadline`.
    pub(super) fn pause(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + PAUSE)
    }

    /// Ends the join within a few seconds, with an error. A join that has succeeded stays.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }
}
