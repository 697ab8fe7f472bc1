//! The threads of a simulated network: how they enter, wait and end.

use super::fault::once_in;
use super::network::{NetworkState, SimulatedNetwork};
use super::turns::ThreadCondition;
use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

thread_local! {
    /// The turns of this thread, if it is one of a simulated network.
    static TURNS: RefCell<Option<ThreadTurns>> = const { RefCell::new(None) };
}

/// A thread that was added to a network and has not entered it.
#[derive(Debug)]
pub struct SimulatedThread(ThreadTurns);

impl SimulatedThread {
    pub(super) fn new(network: Arc<SimulatedNetwork>, id: usize) -> Self {
        Self(ThreadTurns { network, id })
    }

    /// Lets others wait for the end of this thread.
    pub fn end(&self) -> ThreadEnd {
        ThreadEnd(self.0.clone())
    }

    /// Makes the calling thread this thread, and waits for its first turn. It takes turns until the
    /// returned value is dropped.
    ///
    /// # Panics
    /// With [`ForcedEnd`](super::ForcedEnd), if the thread must end.
    pub fn enter(self) -> Turn {
        let turns = self.0.clone();
        std::mem::forget(self);
        TURNS.set(Some(turns.clone()));
        // Made before the wait, so that a thread that must end at once ends its turns, too.
        let turn = Turn(turns);
        let ThreadTurns { network, id } = &turn.0;
        drop(network.obey(network.await_turn(network.state(), *id), *id));
        turn
    }
}

/// A thread that never entered takes no turns.
impl Drop for SimulatedThread {
    fn drop(&mut self) {
        self.0.network.state().end_thread(self.0.id);
    }
}

/// The time in which a thread takes turns; see [`SimulatedThread::enter`].
#[derive(Debug)]
pub struct Turn(ThreadTurns);

impl Drop for Turn {
    fn drop(&mut self) {
        let ThreadTurns { network, id } = &self.0;
        let mut state = network.state();
        state.end_thread(*id);
        if state.table.running == Some(*id) {
            network.choose(&mut state);
        }
        drop(state);
        TURNS.set(None);
    }
}

/// The end of a thread; see [`SimulatedThread::end`].
#[derive(Debug)]
pub struct ThreadEnd(ThreadTurns);

impl ThreadEnd {
    /// Waits until the thread takes no more turns. Returns at once if the calling thread belongs to
    /// another network, or to none.
    ///
    /// Never panics, so that a thread that must end can wait for its own threads first.
    pub fn wait(&self) {
        let ThreadTurns { network, id } = &self.0;
        let Some(turns) = current().filter(|turns| turns.is_of(network)) else { return };
        turns.begin_wait();
        loop {
            let mut state = network.state();
            if state.table.threads[*id].condition == ThreadCondition::Ended {
                return;
            }
            state.table.idle(turns.id, None);
            network.choose(&mut state);
            drop(network.await_turn(state, turns.id));
        }
    }
}

/// The turns of a thread.
#[derive(Clone, Debug)]
pub struct ThreadTurns {
    network: Arc<SimulatedNetwork>,
    id: usize,
}

/// Returns the turns of the calling thread; `None` if it belongs to no simulated network.
pub fn current() -> Option<ThreadTurns> {
    // A thread that ends drops its local values, and a stream may be among them.
    TURNS.try_with(|turns| turns.borrow().clone()).ok().flatten()
}

/// Returns the time: that of the simulated network if the calling thread belongs to one, else that
/// of the system.
pub fn now() -> Instant {
    current().map_or_else(Instant::now, |turns| turns.now())
}

/// Notes that something happened which any thread of the calling thread's simulated network may
/// wait for. Does nothing if the calling thread belongs to none.
///
/// Links, and what one thread of a rank does for another, need no such note.
pub fn note_change() {
    if let Some(turns) = current() {
        turns.network.note_change();
    }
}

/// Polls `ready`, one turn after the other, until it returns a value. Returns `None` if the calling
/// thread belongs to no simulated network, else the value, or the error if `deadline` has passed.
///
/// # Panics
/// With [`ForcedEnd`](super::ForcedEnd), if the thread must end.
pub fn wait<T>(
    deadline: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<Result<T, DeadlinePassed>> {
    let turns = current()?;
    turns.begin_wait();
    loop {
        for _ in 0..turns.polls() {
            if let Some(value) = ready() {
                return Some(Ok(value));
            }
        }
        if deadline.is_some_and(|deadline| turns.now() >= deadline) {
            return Some(Err(DeadlinePassed));
        }
        turns.idle(deadline);
    }
}

/// Polls `ready` until it returns a value, or `deadline` has passed. Sleeps for `pause` between two
/// polls. A thread of a simulated network polls by turns instead.
///
/// # Panics
/// With [`ForcedEnd`](super::ForcedEnd), if the thread must end.
pub fn poll_until<T>(
    deadline: Instant,
    pause: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    if let Some(ended) = wait(Some(deadline), &mut ready) {
        return ended.ok();
    }
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
    }
}

/// The deadline of a [`wait`] has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeadlinePassed;

impl ThreadTurns {
    /// True if these are turns in `network`.
    pub(super) fn is_of(&self, network: &Arc<SimulatedNetwork>) -> bool {
        Arc::ptr_eq(&self.network, network)
    }

    /// Returns the time of the network.
    pub fn now(&self) -> Instant {
        self.network.instant(self.network.state().table.clock)
    }

    /// Adds a thread of the same rank.
    pub fn add_thread(&self) -> SimulatedThread {
        let rank = self.network.state().table.threads[self.id].rank;
        self.network.add_thread(rank)
    }

    /// True if the rank of this thread was dropped. What it does from then on, others do not see.
    pub fn is_dropped(&self) -> bool {
        let state = self.network.state();
        state.is_dead(state.table.threads[self.id].rank)
    }

    /// Begins a wait. Other threads see what this thread has done before.
    pub fn begin_wait(&self) {
        self.network.state().table.begin_wait(self.id);
    }

    /// Returns how often a wait polls in this turn.
    pub fn polls(&self) -> u32 {
        let mut state = self.network.state();
        let NetworkState { table, random, .. } = &mut *state;
        table.polls(self.id, random)
    }

    /// Passes the turn on. Returns when this thread has it again, because something has happened
    /// or `deadline` has passed.
    ///
    /// # Panics
    /// With [`ForcedEnd`](super::ForcedEnd), if the thread must end.
    pub fn idle(&self, deadline: Option<Instant>) {
        let mut state = self.network.step(self.network.state(), self.id);
        let deadline = deadline.map(|deadline| self.network.micros(deadline));
        state.table.idle(self.id, deadline);
        drop(self.network.pass(state, self.id));
    }

    /// A step at a link of `network`, which is this thread's. Sometimes it passes the turn on.
    pub(super) fn step_at_link<'a>(
        &self,
        network: &'a Arc<SimulatedNetwork>,
    ) -> MutexGuard<'a, NetworkState> {
        let state = network.state();
        if state.table.is_quiet(self.id) {
            return state;
        }
        let mut state = network.step(state, self.id);
        if once_in(&mut state.random, 8) { network.pass(state, self.id) } else { state }
    }
}
