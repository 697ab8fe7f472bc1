//! Tells when ranks end, on one thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::process;
use anyhow::{Context, Result};
use crossbeam_channel::Sender;
use maypole_transports::watch::{Watch, pidfd};

use super::ranks::LaunchEvent;

/// How long to sleep where nothing happens. The end of the sleep has no effect.
const SLEEP: Duration = Duration::from_secs(3600);

/// Sends an event when a rank ends.
pub(super) struct EndWatch {
    shared: Arc<SharedWatch>,
    events: Sender<LaunchEvent>,
}

/// The descriptors of the ranks that run, with the number of each process, by rank.
struct SharedWatch {
    watch: Watch,
    running: Mutex<BTreeMap<u64, (u32, OwnedFd)>>,
}

impl EndWatch {
    /// Starts the thread. It runs until this process ends.
    pub(super) fn start(events: Sender<LaunchEvent>) -> Result<Self> {
        let shared = SharedWatch { watch: Watch::new()?, running: Mutex::default() };
        let shared = Arc::new(shared);
        let watched = Arc::clone(&shared);
        let sender = events.clone();
        let work = move || {
            let _ = watched.report(&sender);
        };
        let thread = thread::Builder::new().name("ends".to_owned()).spawn(work);
        thread.context("cannot start the thread that waits for ranks")?;
        Ok(Self { shared, events })
    }

    /// Sends an event when process `number`, which is `rank`, ends.
    pub(super) fn add(&self, rank: usize, number: u32) -> Result<()> {
        self.shared.add(rank, number).or_else(|_| {
            // Kernels before 5.3 and some sandboxes have no descriptors of processes.
            let events = self.events.clone();
            let wait = move || send_end(&events, rank, number);
            let thread = thread::Builder::new().stack_size(128 << 10).spawn(wait);
            thread.map(drop).context("cannot start a thread that waits for a rank")
        })
    }
}

impl SharedWatch {
    fn add(&self, rank: usize, number: u32) -> io::Result<()> {
        let end = pidfd(number)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.watch.add(&end, rank as u64, false)?;
        running.insert(rank as u64, (number, end));
        Ok(())
    }

    fn report(&self, events: &Sender<LaunchEvent>) -> io::Result<()> {
        let mut ended = Vec::new();
        loop {
            self.watch.wait(&mut ended, SLEEP)?;
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            for rank in ended.drain(..) {
                let Some((number, end)) = running.remove(&rank) else { continue };
                self.watch.remove(&end);
                send_end(events, rank as usize, number);
            }
        }
    }
}

fn send_end(events: &Sender<LaunchEvent>, rank: usize, number: u32) {
    if let Ok(end) = process::await_end(number) {
        // Without a receiver the launcher has ended already.
        let _ = events.send(LaunchEvent::Ended(rank, end));
    }
}
