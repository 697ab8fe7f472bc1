//! Where the engine is: at home, or with the thread that runs requests.
//!
//! An engine runs one operation at a time. Blocking calls use it on their caller's thread; requests
//! are run by a thread of the communicator's own, to which the engine is sent, and which sends it
//! back once its queue is empty. The two never share it, so nothing is locked, and a blocking call
//! pays no more than a look at whether the engine is here. Whoever needs the engine while it is
//! away waits for it, which is what blocking calls after requests must do anyway.

use crate::comm::engine::Engine;
use crate::comm::requests::progress::Progress;
use crate::execute::messages::MessageLinks;
use crate::schedule::hosts::Boards;
use maypole_transports::Alarm;
use std::cell::OnceCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// What calls are run with: all of it goes where they run.
#[derive(Debug)]
pub(crate) struct Kit {
    engine: Engine,
    /// Links for messages between two ranks.
    message_links: MessageLinks,
}

/// What a communicator has of its engine.
pub(crate) struct Home {
    // What may be asked at any time, wherever the engine is.
    pub(crate) rank: usize,
    pub(crate) world: usize,
    pub(crate) boards: Boards,
    pub(crate) timeout: Duration,
    /// By which those who wait for requests hurry them.
    pub(crate) alarm: Arc<Alarm>,
    /// Empty while the engine is away. A shared borrow can fill it, so that looking at the engine
    /// can wait for it.
    here: OnceCell<Box<Kit>>,
    /// The thread that runs requests, once there was one.
    pub(crate) progress: Option<Progress>,
    /// Where that thread is: a forked child has our memory without it.
    process: u32,
}

impl Home {
    pub(crate) fn new(engine: Engine) -> Self {
        let message_links = MessageLinks::new(engine.rank, engine.world);
        Self {
            rank: engine.rank,
            world: engine.world,
            boards: engine.boards.clone(),
            timeout: engine.timeout,
            alarm: engine.control.alarm(),
            here: OnceCell::from(Box::new(Kit { engine, message_links })),
            progress: None,
            process: std::process::id(),
        }
    }

    /// A home of the same rank, to which the engine can be sent.
    pub(crate) fn empty(&self) -> Self {
        let Self { rank, world, timeout, process, .. } = *self;
        let boards = self.boards.clone();
        let alarm = Arc::clone(&self.alarm);
        Self { rank, world, boards, timeout, alarm, here: OnceCell::new(), progress: None, process }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.here.get().is_some()
    }

    /// Takes the engine away, once the queue is empty.
    pub(crate) fn take(&mut self) -> Box<Kit> {
        self.wait();
        self.here.take().expect("it is waited for")
    }

    pub(crate) fn put(&mut self, kit: Box<Kit>) {
        self.timeout = kit.engine.timeout;
        self.here = OnceCell::from(kit);
    }

    /// Changes the engine in turn: after the requests in flight, before later ones, without waiting
    /// for any.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Engine) + Send + 'static) {
        match self.here.get_mut() {
            Some(kit) => change(&mut kit.engine),
            None => self.away().run(Box::new(|comm| change(&mut comm.engine))),
        }
    }

    /// Ends the thread that runs requests, after those in flight; true if the engine is here then,
    /// and ours.
    pub(crate) fn gather(&mut self) -> bool {
        if self.is_forked() {
            // The thread is in our parent, and so is whoever leaves.
            std::mem::forget(self.progress.take());
            return false;
        }
        if let Some(progress) = self.progress.take()
            && let Some(kit) = progress.end(!self.is_here())
        {
            self.put(kit);
        }
        self.is_here()
    }

    /// The links for messages, and the engine beside them.
    pub(crate) fn with_message_links(&mut self) -> (&mut Engine, &mut MessageLinks) {
        let kit = self.kit_mut();
        (&mut kit.engine, &mut kit.message_links)
    }

    pub(crate) fn message_links(&self) -> &MessageLinks {
        &self.kit().message_links
    }

    #[inline(always)]
    fn kit(&self) -> &Kit {
        match self.here.get() {
            Some(kit) => kit,
            None => self.wait(),
        }
    }

    #[inline(always)]
    fn kit_mut(&mut self) -> &mut Kit {
        if self.here.get_mut().is_none() {
            self.wait();
        }
        self.here.get_mut().expect("it is waited for")
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The thread that has the engine, or can have it.
    ///
    /// # Panics
    /// In a forked child, which would wait for ever.
    pub(crate) fn away(&self) -> &Progress {
        assert!(
            !self.is_forked(),
            "a communicator with requests was made before this process was forked"
        );
        self.progress.as_ref().expect("an engine that is not here was sent to its thread")
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> &Kit {
        self.here.get_or_init(|| self.away().recall())
    }
}

impl Deref for Home {
    type Target = Engine;

    #[inline(always)]
    fn deref(&self) -> &Engine {
        &self.kit().engine
    }
}

impl DerefMut for Home {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.kit_mut().engine
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, here, .. } = self;
        f.debug_struct("Home")
            .field("rank", rank)
            .field("world", world)
            .field("here", here)
            .finish_non_exhaustive()
    }
}
