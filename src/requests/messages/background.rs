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

/// How long the thread in the background sleeps while another thread drives.
const STANDING_ASIDE: Duration = Duration::from_micros(200);
/// How often, and how long each time, the thread in the background sleeps before it must be woken.
const NAPS: u32 = 10;
const NAP: Duration = Duration::from_millis(1);

impl Messages {
    /// Lets the thread in the background drive. Without such a thread, requests go on while a
    /// thread waits for one of them or makes a call.
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

    /// Drives in the background until no request is under way.
    fn drive_in_background(&self) {
        let mut done = || {
            if !self.inbox.has_waiter() {
                return self.poll().then_some(());
            }
            if turns::current().is_none() {
                thread::sleep(STANDING_ASIDE);
            }
            None
        };
        loop {
            let waiting = self.conditions.waiting.in_background();
            self.poll_until_over(waiting, |sleep| self.sleep_in_background(sleep), &mut done);
            self.doze();
            self.is_roused.store(false, Ordering::SeqCst);
            // A request that was started before the line above has woken nobody.
            if !self.is_busy() || self.is_roused.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Takes the `sleep`. While a message is on its way through shared memory, each of its parts ends the
    /// sleep: the peer may wait for it. This thread keeps the links meanwhile, so at other times only the
    /// alarm ends the sleep, and whoever starts a message drives it at once.
    fn sleep_in_background(&self, sleep: Sleep<'_>) {
        if !self.inbox.has_waiter()
            && let Some(mut driven) = self.try_drive()
            && driven.links.is_moving()
        {
            return driven.sleep(sleep);
        }
        sleep.take(iter::empty());
    }

    /// Sleeps for a while in which a request need not wake this thread.
    fn doze(&self) {
        for _ in 0..NAPS {
            let ends = turns::current().is_some() || self.is_closing.load(Ordering::Acquire);
            if ends || self.inbox.is_filled() || self.is_busy() {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// Ends the thread in the background, after the requests under way.
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

/// Owns what it uses, so that all is dropped within the turns of a thread that takes them.
fn serve(messages: Arc<Messages>, wakes: Receiver<()>) {
    while receive(&wakes).is_some() {
        messages.drive_in_background();
    }
}
