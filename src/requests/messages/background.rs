//! The thread that drives messages while no thread of the program waits for one.

use crate::control::departures::LeavingThread;
use crate::requests::messages::driver::{BackgroundThread, Messages};
use crate::requests::progress::receive;
use maypole_transports::{Sleep, turns};
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// The sleep of the background thread while another thread drives.
const STANDING_ASIDE: Duration = Duration::from_micros(200);
/// The number and length of the background thread's sleeps before it waits for a wake-up.
const NAPS: u32 = 10;
const NAP: Duration = Duration::from_millis(1);

impl Messages {
    /// Wakes the background thread, which then drives. Without such a thread, requests progress
    /// only while a thread waits for one of them or makes a call.
    pub(super) fn rouse(self: &Arc<Self>) {
        if self.is_roused.swap(true, Ordering::AcqRel) || self.is_closing.load(Ordering::Acquire) {
            return;
        }
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if background.is_none() {
            match BackgroundThread::start(Arc::clone(self)) {
                Ok(thread) => *background = Some(thread),
                Err(error) => tracing::debug!(%error, "messages have no thread in the background"),
            }
        }
        if let Some(thread) = &*background {
            // The thread ends after its channel.
            let _ = thread.wake.send(());
        }
    }

    /// Drives in the background until no request is in flight.
    fn drive_in_background(&self) {
        let mut done = || {
            if !self.inbox.has_waiter() {
                return self.poll();
            }
            if turns::current().is_none() {
                thread::sleep(STANDING_ASIDE);
            }
            false
        };
        loop {
            let waiting = self.conditions.waiting.in_background();
            self.poll_until_over(waiting, |sleep| self.sleep_in_background(sleep), &mut done);
            self.doze();
            self.is_roused.store(false, Ordering::SeqCst);
            // A request that was started before the line above has woken no thread.
            if !self.is_busy() || self.is_roused.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Takes the `sleep`. While a message moves through shared memory, each of its parts ends the
    /// sleep, because the peer may wait for it. This thread holds the lock of the links meanwhile.
    /// At other times only the alarm ends the sleep, without that lock, so a thread that starts a
    /// message drives it immediately.
    fn sleep_in_background(&self, sleep: Sleep<'_>) {
        if !self.inbox.has_waiter()
            && let Some(mut driven) = self.try_drive()
            && driven.links.is_moving()
        {
            return driven.sleep(sleep);
        }
        sleep.take(iter::empty());
    }

    /// Sleeps for a time in which a request need not wake this thread.
    fn doze(&self) {
        for _ in 0..NAPS {
            let ends = turns::current().is_some() || self.is_closing.load(Ordering::Acquire);
            if ends || self.inbox.is_filled() || self.is_busy() {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// Ends the background thread, after the requests in flight.
    pub(super) fn end_background(&self) {
        self.is_closing.store(true, Ordering::Release);
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(BackgroundThread { wake, thread }) = background {
            drop(wake);
            thread.join();
        }
    }
}

impl BackgroundThread {
    fn start(messages: Arc<Messages>) -> std::io::Result<Self> {
        let (wake, wakes) = channel();
        let name = format!("maypole-{}-msg", messages.rank);
        let thread = LeavingThread::start(name, move || serve(messages, wakes))?;
        Ok(Self { wake, thread })
    }
}

/// Owns its arguments, so that they are dropped within the thread's turns of a simulation.
fn serve(messages: Arc<Messages>, wakes: Receiver<()>) {
    while receive(&wakes).is_some() {
        messages.drive_in_background();
    }
}
