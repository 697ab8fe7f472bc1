//! The thread that aborts waiting kernels after a failure.
//!
//! A kernel cannot reach the control plane, and the host may make no call for a long time: it
//! replays graphs, or waits for its stream. The thread checks every few milliseconds whether the
//! group has failed, and then aborts the kernels; it also publishes to them the ranks that have
//! left. If a kernel of this rank aborted by itself, the thread reports that to the other ranks.

use super::courier::FarDepartures;
use crate::engine::device::DeviceWitness;
use maypole_transports::cuda::{Reason, ReportWords};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two checks. A failure is rare, and nothing else waits for a check.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct FailureWatch(Option<(Sender<()>, JoinHandle<()>)>);

impl FailureWatch {
    /// Starts the thread. `patience` is the timeout of the last call, in nanoseconds. `departures` are those
    /// of ranks on other hosts.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(super) fn start(
        mut witness: DeviceWitness,
        words: Arc<ReportWords>,
        patience: Arc<AtomicU64>,
        departures: FarDepartures,
    ) -> io::Result<Self> {
        let (end, ended) = channel();
        let watch = move || {
            let mut gone = 0;
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let left = departures.with_near(witness.left());
                if left != gone {
                    gone = left;
                    words.set_gone(gone);
                }
                // A kernel that was aborted from outside has no reason.
                let report = words.report().filter(|it| it.reason != Reason::Aborted);
                if let Some(report) = report.filter(|_| !witness.has_failed()) {
                    let allowed = Duration::from_nanos(patience.load(Ordering::Relaxed));
                    witness.tell(report, allowed);
                }
                if report.is_some() || witness.has_failed() {
                    words.abort();
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("maypole-cuda".to_owned()).spawn(watch)?;
        Ok(Self(Some((end, thread))))
    }
}

impl Drop for FailureWatch {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
