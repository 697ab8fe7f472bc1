//! A communicator's handle on its engine. Either the handle owns the engine, or the thread that
//! runs requests does.
//!
//! An engine runs one operation at a time. A blocking call uses the engine on its caller's thread.
//! Requests lend the engine to their queue, where a thread of the communicator's own, or one that
//! waits for a request, runs them. A blocking call only checks whether the handle owns the engine,
//! without a lock. If the engine is lent, the caller runs the queued requests, waits for running
//! ones, and takes the engine back. That adds no latency: a blocking call after requests must wait
//! for the requests anyway.
//!
//! Messages need no engine: see [`Messages`].

use crate::engine::Engine;
use crate::engine::health::{UnreportedError, check_process};
use crate::engine::limits::TimeLimits;
use crate::error::Result;
use crate::execute::messages::MessageDeadline;
use crate::requests::messages::driver::{DrivenMessages, Messages};
use crate::requests::progress::{EngineBorrower, Progress};
use crate::schedule::hosts::Boards;
use maypole_transports::OwnerProcess;
use std::cell::OnceCell;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A handle of the communicator `C` on its engine, which another thread may own.
pub(crate) struct EngineHandle<C> {
    // These fields can be read while the engine is lent.
    pub(crate) rank: usize,
    pub(crate) boards: Boards,
    /// The timeout of calls and requests that are started now.
    pub(crate) timeout: Duration,
    /// The first error of a request that no caller has received.
    pub(crate) unreported: Arc<UnreportedError>,
    /// The messages of this rank, which need no engine.
    pub(crate) messages: Arc<Messages>,
    /// The engine. Empty while it is lent to requests. A read through `&self` waits until it is
    /// returned and stores it here, hence the cell.
    here: OnceCell<Box<Engine>>,
    /// The thread that runs requests, from the first request on.
    pub(crate) progress: Option<Progress<C>>,
    /// The process of that thread: a forked child has our memory without the thread.
    pub(crate) owner: OwnerProcess,
}

impl<C: EngineBorrower> EngineHandle<C> {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            rank: engine.rank,
            boards: engine.boards.clone(),
            timeout: engine.limits.timeout,
            unreported: Arc::clone(&engine.health.unreported),
            owner: engine.health.owner,
            messages: Messages::new(&engine),
            here: OnceCell::from(Box::new(engine)),
            progress: None,
        }
    }

    /// A handle of the same rank without an engine, to which the engine can be sent.
    pub(crate) fn empty(&self) -> Self {
        Self {
            rank: self.rank,
            boards: self.boards.clone(),
            timeout: self.timeout,
            unreported: Arc::clone(&self.unreported),
            messages: Arc::clone(&self.messages),
            here: OnceCell::new(),
            progress: None,
            owner: self.owner,
        }
    }

    /// The engine. Waits for requests in flight.
    #[inline(always)]
    pub(crate) fn get(&self) -> &Engine {
        match self.here.get() {
            Some(here) => here,
            None => self.wait(),
        }
    }

    /// The engine. Waits for requests in flight.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self) -> &mut Engine {
        if self.here.get_mut().is_none() {
            self.wait();
        }
        self.here.get_mut().expect("the engine is here after waiting")
    }

    /// The engine, and the messages, which this thread drives from now on. Waits for requests in
    /// flight other than messages.
    pub(crate) fn with_messages(
        &mut self,
    ) -> (&mut Engine, &Messages, MutexGuard<'_, DrivenMessages>) {
        // Only for its wait: the messages are borrowed together with the engine.
        self.get_mut();
        let here = self.here.get_mut().expect("the engine is here after waiting");
        (here, &self.messages, self.messages.drive())
    }

    /// The deadline of a message that is started now.
    pub(crate) fn message_deadline(&self) -> MessageDeadline {
        let of_requests = TimeLimits::new(self.timeout);
        let limits = self.here.get().map_or(&of_requests, |engine| &engine.limits);
        MessageDeadline { end: limits.deadline(), allowed: limits.allowed() }
    }

    /// Changes the timeout of calls and requests that are started from now on.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.change(move |engine| engine.change_limits(|limits| limits.timeout = timeout));
    }

    pub(crate) fn is_here(&self) -> bool {
        self.here.get().is_some()
    }

    /// Takes the engine out of the handle, once the queue is empty.
    pub(crate) fn take(&mut self) -> Box<Engine> {
        self.wait();
        self.here.take().expect("the engine is here after waiting")
    }

    pub(crate) fn put(&mut self, engine: Box<Engine>) {
        self.timeout = engine.limits.timeout;
        self.here = OnceCell::from(engine);
    }

    /// Changes the engine after the requests in flight and before later ones. Non-blocking.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Engine) + Send + 'static) {
        if self.is_forked() {
            return change(self.get_mut());
        }
        match self.here.get_mut() {
            Some(here) => change(here),
            None => self.progress().run(Box::new(|comm: &mut C| change(comm.engine()))),
        }
    }

    /// The thread to which the engine is lent. A forked child has no such thread and must not call
    /// this.
    pub(crate) fn progress(&self) -> &Progress<C> {
        self.progress.as_ref().expect("an engine that is not here was sent to its thread")
    }

    /// True on the thread that runs a request.
    pub(crate) fn runs_on_this_thread(&self) -> bool {
        self.progress.as_ref().is_some_and(Progress::runs_on_this_thread)
    }

    /// If requests are in flight, lets their thread leave the group after them, and returns true.
    pub(crate) fn hand_over(&mut self) -> bool {
        let runs = self.progress.as_ref().is_some_and(Progress::is_busy);
        let is_busy = !self.is_here() && (runs || self.messages.is_busy());
        if let Some(progress) = self.progress.take_if(|_| is_busy) {
            self.messages.control.departures().add(progress.leave());
        }
        is_busy
    }

    /// Ends the thread that runs requests, after the requests in flight. Returns true if this
    /// process then owns the engine and must leave the group.
    pub(crate) fn end_progress(&mut self) -> bool {
        if self.is_forked() {
            // The thread runs in the parent, which is the rank and leaves the group.
            std::mem::forget(self.progress.take());
            return false;
        }
        if let Some(progress) = self.progress.take()
            && let Some(engine) = progress.end(!self.is_here())
        {
            self.put(engine);
        }
        self.is_here()
    }

    /// True in a forked child, whose parent is the rank.
    pub(crate) fn is_forked(&self) -> bool {
        !self.owner.is_current()
    }

    /// Returns an error in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        check_process(self.owner, self.rank)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> &Engine {
        self.here.get_or_init(|| match self.is_forked() {
            false => self.progress().recall(),
            // The thread that owns the engine runs in the parent.
            true => {
                let (boards, control) = (self.boards.clone(), Arc::clone(&self.messages.control));
                let conditions = self.messages.conditions.clone();
                let mut engine = Engine::new(self.rank, boards, control, conditions);
                engine.health.owner = self.owner;
                Box::new(engine)
            }
        })
    }
}
