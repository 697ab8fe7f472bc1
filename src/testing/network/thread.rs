//! The threads of a simulated network: how they enter, wait and end.

use super::fault::once_in;
use super::state::{NetworkState, SimulatedNetwork};
use super::turns::ThreadCondition;
use maypole_transports::turns::{self, AddedThread, ThreadEnd, TurnTaking};
use std::any::Any;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// A thread that was added to a network and has not entered it.
#[derive(Debug)]
pub struct SimulatedThread(ThreadTurns);

impl SimulatedThread {
    pub(super) fn new(network: Arc<SimulatedNetwork>, id: usize) -> Self {
        Self(ThreadTurns { network, id })
    }
}

impl AddedThread for SimulatedThread {
    fn end(&self) -> Box<dyn ThreadEnd> {
        Box::new(SimulatedEnd(self.0.clone()))
    }

    /// # Panics
    /// With [`ForcedEnd`](super::ForcedEnd), if the thread must end.
    fn enter(self: Box<Self>) -> Box<dyn Any> {
        let turns = self.0.clone();
        std::mem::forget(self);
        turns::set_current(Some(Arc::new(turns.clone())));
        // Made before the wait, so that a thread that must end immediately ends its turns, too.
        let turn = Turn(turns);
        let ThreadTurns { network, id } = &turn.0;
        drop(network.obey(network.await_turn(network.state(), *id), *id));
        Box::new(turn)
    }
}

/// A thread that never entered takes no turns.
impl Drop for SimulatedThread {
    fn drop(&mut self) {
        self.0.network.state().end_thread(self.0.id);
    }
}

/// The time in which a thread takes turns.
#[derive(Debug)]
struct Turn(ThreadTurns);

impl Drop for Turn {
    fn drop(&mut self) {
        let ThreadTurns { network, id } = &self.0;
        let mut state = network.state();
        state.end_thread(*id);
        if state.table.running == Some(*id) {
            network.choose(&mut state);
        }
        drop(state);
        turns::set_current(None);
    }
}

/// The end of a thread.
#[derive(Debug)]
struct SimulatedEnd(ThreadTurns);

impl ThreadEnd for SimulatedEnd {
    /// Never panics, so that a thread that must end can wait for its own threads first.
    fn wait(&self) {
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

#[derive(Clone, Debug)]
pub(super) struct ThreadTurns {
    network: Arc<SimulatedNetwork>,
    id: usize,
}

/// Returns the turns of the calling thread; `None` if it has none in a simulated network.
pub(super) fn current() -> Option<ThreadTurns> {
    let turns: Arc<dyn Any + Send + Sync> = turns::current()?;
    turns.downcast().ok().map(|turns: Arc<ThreadTurns>| (*turns).clone())
}

impl ThreadTurns {
    /// True if these are turns in `network`.
    pub(super) fn is_of(&self, network: &Arc<SimulatedNetwork>) -> bool {
        Arc::ptr_eq(&self.network, network)
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

/// # Panics
/// A method that passes the turn on panics with [`ForcedEnd`](super::ForcedEnd), if the thread must
/// end.
impl TurnTaking for ThreadTurns {
    fn now(&self) -> Instant {
        self.network.instant(self.network.state().table.clock)
    }

    fn begin_wait(&self) {
        self.network.state().table.begin_wait(self.id);
    }

    fn polls(&self) -> u32 {
        let mut state = self.network.state();
        let NetworkState { table, random, .. } = &mut *state;
        table.polls(self.id, random)
    }

    fn idle(&self, deadline: Option<Instant>) {
        let mut state = self.network.step(self.network.state(), self.id);
        let deadline = deadline.map(|deadline| self.network.micros(deadline));
        state.table.idle(self.id, deadline);
        drop(self.network.pass(state, self.id));
    }

    fn note_change(&self) {
        self.network.note_change();
    }

    fn is_dropped(&self) -> bool {
        let state = self.network.state();
        state.is_dead(state.table.threads[self.id].rank)
    }

    fn add_thread(&self) -> Box<dyn AddedThread> {
        let rank = self.network.state().table.threads[self.id].rank;
        Box::new(self.network.add_thread(rank))
    }
}
