//! Communicators that a rank drops while their requests are in flight.
//!
//! Dropping such a communicator does not wait. Its requests may wait for ranks that wait for this
//! rank in another group, which this rank drops next. The thread that runs the requests leaves the
//! group after them. The last communicator that the rank drops waits for these threads, so a
//! program that ends afterwards loses no bytes.

use maypole_transports::lock;
use maypole_transports::turns::{self, ThreadEnd};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle, ThreadId};

/// The open communicators of one rank in one world, and its threads that still leave groups.
#[derive(Debug, Default)]
pub(crate) struct Departures(Mutex<DepartureState>);

#[derive(Debug, Default)]
struct DepartureState {
    /// The number of open communicators of the rank.
    open: usize,
    leaving: Vec<LeavingThread>,
}

/// A thread that ends once it has left its group.
#[derive(Debug)]
pub(crate) struct LeavingThread {
    thread: JoinHandle<()>,
    /// The end of the thread, if it takes turns.
    end: Option<Box<dyn ThreadEnd>>,
    /// The thread that runs a request now, after which this one leaves.
    behind: Option<Arc<Mutex<Option<ThreadId>>>>,
}

impl Departures {
    /// Counts one more communicator of the rank.
    pub(crate) fn open(&self) {
        lock(&self.0).open += 1;
    }

    /// Keeps `thread` until it has ended, or until the rank's last communicator waits for it.
    pub(crate) fn add(&self, thread: LeavingThread) {
        let mut state = lock(&self.0);
        state.leaving.retain(|it| !it.thread.is_finished());
        state.leaving.push(thread);
    }

    /// Counts a communicator of the rank that was dropped. If it was the last one, waits for the
    /// threads that still leave groups; each of their requests has its deadline.
    pub(crate) fn close(&self) {
        let leaving = {
            let mut state = lock(&self.0);
            state.open -= 1;
            if state.open > 0 {
                return;
            }
            std::mem::take(&mut state.leaving)
        };
        // A request may own the last communicator. The thread that runs it cannot wait for itself.
        let others = leaving.into_iter().filter(|it| !it.awaits_this_thread());
        others.for_each(LeavingThread::join);
    }
}

impl LeavingThread {
    /// Starts a thread that runs `body`. It takes turns if the calling thread does; `body` owns its
    /// data, so that all is dropped within them.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let turns = turns::current().map(|turns| turns.add_thread());
        let end = turns.as_ref().map(|thread| thread.end());
        let thread = Builder::new().name(name).spawn(move || {
            let _turn = turns.map(|thread| thread.enter());
            body();
        })?;
        Ok(Self { thread, end, behind: None })
    }

    /// This thread, which leaves after the requests that `runner` runs.
    pub(crate) fn behind(self, runner: Arc<Mutex<Option<ThreadId>>>) -> Self {
        Self { behind: Some(runner), ..self }
    }

    /// True on the thread itself, and on the one that runs a request before it leaves.
    fn awaits_this_thread(&self) -> bool {
        let here = thread::current().id();
        let runner = self.behind.as_ref().map(|it| lock(it));
        self.thread.thread().id() == here || runner.is_some_and(|runner| *runner == Some(here))
    }

    /// Waits for the end of the thread. Panics of its requests were caught there.
    pub(crate) fn join(self) {
        if let Some(end) = self.end {
            end.wait();
        }
        let _ = self.thread.join();
    }
}
