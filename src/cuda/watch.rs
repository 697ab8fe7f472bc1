//! The thread that hears of failures while kernels wait.
//!
//! A kernel cannot ask the control plane. The thread asks every few milliseconds whether the group
//! has failed, and then tells the kernels to give up.

use maypole_transports::Alarm;
use maypole_transports::cuda::ReportWords;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two looks. A failure is rare, and nobody waits for a look else.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(super) fn start(alarm: Arc<Alarm>, words: Arc<ReportWords>) -> io::Result<Self> {
        let (end, ended) = channel();
        let watch = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if alarm.raised() {
                    words.abort();
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("maypole-cuda".to_owned()).spawn(watch)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}
