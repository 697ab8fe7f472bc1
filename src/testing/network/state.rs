//! The state that all threads and links of a simulated network share.

use super::ForcedEnd;
use super::conditions::{NetworkConditions, NetworkReport, WorldObserver};
use super::fault::{CorruptedByte, PlannedCorruption, SimulatedFault, below, once_in, skewed};
use super::hang::{HangReason, picture};
use super::link::LinkDirection;
use super::stream::SimulatedStream;
use super::thread::SimulatedThread;
use super::turns::{ThreadCondition, TurnTable};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::SeedableRng;
use std::fmt;
use std::mem::take;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Threads that take turns, and the links between them.
pub struct SimulatedNetwork {
    pub(super) conditions: NetworkConditions,
    start: Instant,
    state: Mutex<NetworkState>,
    observer: OnceLock<Box<dyn WorldObserver>>,
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedNetwork")
            .field("seed", &self.conditions.seed)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) table: TurnTable,
    pub(super) random: SplitMix64,
    trace: u64,
    pub(super) directions: Vec<LinkDirection>,
    ranks: Vec<RankState>,
    /// Deaths to be detected, and when.
    notices: Vec<(u64, usize)>,
    pub(super) corruptions: Vec<PlannedCorruption>,
    pub(super) corrupted: Vec<CorruptedByte>,
    dropped: Vec<usize>,
    hang: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct RankState {
    steps: u64,
    /// It is dropped after so many steps.
    last_step: Option<u64>,
    dead: bool,
}

impl SimulatedNetwork {
    /// Makes a network without threads and links.
    ///
    /// # Panics
    /// If links hold nothing, or a fault names a rank that does not exist.
    pub fn new(conditions: NetworkConditions) -> Arc<Self> {
        assert!(conditions.capacity > 0, "a simulated link must hold at least one byte");
        let state = Mutex::new(NetworkState::new(&conditions));
        Arc::new(Self { conditions, start: Instant::now(), state, observer: OnceLock::new() })
    }

    /// Sets the control plane, which receives deaths. Only the first call counts.
    pub fn observe(&self, observer: impl WorldObserver + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    /// Adds a thread of `rank`. It counts from now on, so it must soon
    /// [enter](maypole_transports::turns::AddedThread::enter).
    pub fn add_thread(self: &Arc<Self>, rank: usize) -> SimulatedThread {
        let id = self.state().table.add(rank);
        SimulatedThread::new(Arc::clone(self), id)
    }

    /// Joins two ranks: the end of `near`, and the end of `far`.
    pub fn link(self: &Arc<Self>, near: usize, far: usize) -> (SimulatedStream, SimulatedStream) {
        let mut state = self.state();
        let forward = state.add_direction(near, far);
        let backward = state.add_direction(far, near);
        drop(state);
        let stream =
            |outgoing, incoming| SimulatedStream { network: Arc::clone(self), outgoing, incoming };
        (stream(forward, backward), stream(backward, forward))
    }

    /// Records an event that any thread may wait for.
    pub(super) fn note_change(&self) {
        self.state().table.change_all();
    }

    /// Gives the first turn to a thread. All threads of the beginning have been added.
    pub fn start(&self) {
        let mut state = self.state();
        if state.table.running.is_none() {
            self.choose(&mut state);
        }
    }

    /// Returns the rank whose thread has the turn, if any has.
    pub fn running_rank(&self) -> Option<usize> {
        let state = self.state();
        state.table.running.map(|id| state.table.threads[id].rank)
    }

    /// The report of the run so far.
    pub fn report(&self) -> NetworkReport {
        let state = self.state();
        NetworkReport {
            turns: state.table.turns,
            trace: state.trace,
            elapsed: Duration::from_micros(state.table.clock),
            dropped: state.dropped.clone(),
            corrupted: state.corrupted.clone(),
            hang: state.hang.clone(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, NetworkState> {
        // No user code runs under this lock, so a panic under it is a defect of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn instant(&self, clock: u64) -> Instant {
        self.start + Duration::from_micros(clock)
    }

    /// The first microsecond of the clock that is not before `instant`.
    pub(super) fn micros(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Chooses the thread that has the next turn, and wakes it.
    pub(super) fn choose(&self, state: &mut NetworkState) {
        state.table.turns += 1;
        state.table.clock += 1;
        if state.table.turns == self.conditions.most_turns {
            self.end_hang(state, HangReason::TooManyTurns);
        }
        state.table.running = self.next_thread(state);
        if let Some(id) = state.table.running {
            state.note(id as u64);
            state.table.threads[id].wake.notify_one();
        }
    }

    fn next_thread(&self, state: &mut NetworkState) -> Option<usize> {
        loop {
            if let Some(id) = state.table.draw(&mut state.random) {
                return Some(id);
            }
            if state.table.is_over() {
                return None;
            }
            if !state.table.advance() {
                self.end_hang(state, HangReason::NothingCanHappen);
            }
        }
    }

    /// Ends the run, because all threads are blocked.
    fn end_hang(&self, state: &mut NetworkState, reason: HangReason) {
        if state.hang.is_none() {
            let seed = self.conditions.seed;
            state.hang = Some(picture(reason, seed, &state.table, &state.directions));
        }
        state.table.release_all();
    }

    /// Passes the turn of thread `id` on, and returns when it has the turn again.
    ///
    /// # Panics
    /// With [`ForcedEnd`], if the thread must end.
    pub(super) fn pass<'a>(
        &'a self,
        mut state: MutexGuard<'a, NetworkState>,
        id: usize,
    ) -> MutexGuard<'a, NetworkState> {
        self.choose(&mut state);
        self.obey(self.await_turn(state, id), id)
    }

    /// Waits for the turn of thread `id`.
    pub(super) fn await_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, NetworkState>,
        id: usize,
    ) -> MutexGuard<'a, NetworkState> {
        let wake = Arc::clone(&state.table.threads[id].wake);
        while state.table.running != Some(id) {
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.table.resume(id);
        self.tell_deaths(state)
    }

    /// Reports deaths that are detected by now to the observer.
    fn tell_deaths<'a>(
        &'a self,
        mut state: MutexGuard<'a, NetworkState>,
    ) -> MutexGuard<'a, NetworkState> {
        let now = state.table.clock;
        let (due, later) = take(&mut state.notices).into_iter().partition(|(at, _)| *at <= now);
        state.notices = later;
        let due: Vec<(u64, usize)> = due;
        let Some(observer) = self.observer.get().filter(|_| !due.is_empty()) else { return state };
        state.table.change_all();
        drop(state);
        due.into_iter().for_each(|(_, rank)| observer.died(rank));
        self.state()
    }

    /// Ends thread `id`, if it must end and is not ending already.
    ///
    /// # Panics
    /// With [`ForcedEnd`].
    pub(super) fn obey<'a>(
        &'a self,
        state: MutexGuard<'a, NetworkState>,
        id: usize,
    ) -> MutexGuard<'a, NetworkState> {
        if let Some(end) = state.forced_end(id)
            && !std::thread::panicking()
        {
            drop(state);
            resume_unwind(Box::new(end));
        }
        state
    }

    /// Counts a step of thread `id`, after which its rank may be dead.
    pub(super) fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, NetworkState>,
        id: usize,
    ) -> MutexGuard<'a, NetworkState> {
        state.table.clock += 1;
        let rank = state.table.threads[id].rank;
        let it = &mut state.ranks[rank];
        it.steps += 1;
        if it.last_step == Some(it.steps) {
            state.kill(rank, self.longest_delay());
        }
        self.obey(state, id)
    }

    /// The longest latency, in microseconds.
    fn longest_delay(&self) -> u64 {
        u64::try_from(self.conditions.longest_delay.as_micros()).unwrap_or(u64::MAX / 4)
    }

    /// The latency of the next bytes.
    pub(super) fn delay(&self, state: &mut NetworkState) -> u64 {
        let at_once = once_in(&mut state.random, 2);
        if at_once { 0 } else { below(&mut state.random, self.longest_delay() + 1) }
    }

    /// The latency of the end of `link`. Not drawn, because the ends of several links may be
    /// dropped in any order.
    pub(super) fn end_delay(&self, link: usize) -> u64 {
        (link as u64 * 7919) % (self.longest_delay() + 1)
    }

    /// How many of `most` bytes `rank` moves now.
    pub(super) fn share(&self, state: &mut NetworkState, rank: usize, most: usize) -> usize {
        if most == 0 {
            return 0;
        }
        // A thread without turns cannot wait for the next poll.
        let may_refuse = state.table.running.is_some();
        match below(&mut state.random, 8) {
            0 if may_refuse => {
                // The next poll may move them.
                state.table.change(rank);
                0
            }
            1..=3 => 1 + below(&mut state.random, most as u64) as usize,
            _ => most,
        }
    }
}

impl NetworkState {
    fn new(conditions: &NetworkConditions) -> Self {
        let mut random = SplitMix64::seed_from_u64(conditions.seed);
        let mut ranks = vec![RankState::default(); conditions.hosts.len()];
        let mut corruptions = Vec::new();
        for fault in &conditions.faults {
            match *fault {
                SimulatedFault::Drop { rank, step } => {
                    assert!(rank < ranks.len(), "rank {rank} is not one of {}", ranks.len());
                    let drawn = skewed(&mut random, 11);
                    ranks[rank].last_step = Some(step.unwrap_or(drawn) + 1);
                }
                SimulatedFault::CorruptHead => {
                    corruptions.push(PlannedCorruption::new(true, &mut random));
                }
                SimulatedFault::CorruptBody => {
                    corruptions.push(PlannedCorruption::new(false, &mut random));
                }
            }
        }
        Self {
            table: TurnTable::new(conditions.hosts.clone()),
            random,
            trace: 0,
            directions: Vec::new(),
            ranks,
            notices: Vec::new(),
            corruptions,
            corrupted: Vec::new(),
            dropped: Vec::new(),
            hang: None,
        }
    }

    /// Adds `word` to the hash of all decisions (FNV-1a, by words).
    pub(super) fn note(&mut self, word: u64) {
        let both = self.trace.rotate_left(5) ^ word ^ (self.table.clock << 20);
        self.trace = both.wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn add_direction(&mut self, from: usize, to: usize) -> usize {
        let direction = LinkDirection::new(from, to);
        // Places of links that are gone are used again, so that a long run stays small.
        if let Some(at) = self.directions.iter().position(|it| it.ends == 0) {
            self.directions[at] = direction;
            return at;
        }
        self.directions.push(direction);
        self.directions.len() - 1
    }

    pub(super) fn is_dead(&self, rank: usize) -> bool {
        self.ranks[rank].dead
    }

    /// Why thread `id` must end, if it must.
    fn forced_end(&self, id: usize) -> Option<ForcedEnd> {
        if self.is_dead(self.table.threads[id].rank) {
            Some(ForcedEnd::Dropped)
        } else {
            self.hang.as_ref().map(|_| ForcedEnd::Hang)
        }
    }

    /// Drops `rank`: its links end, and its threads end when their turns begin.
    fn kill(&mut self, rank: usize, longest_delay: u64) {
        let now = self.table.clock;
        self.ranks[rank].dead = true;
        self.dropped.push(rank);
        self.note(rank as u64);
        for direction in &mut self.directions {
            let delay = below(&mut self.random, longest_delay + 1);
            if direction.from == rank {
                let end = direction.cut(now, delay, &mut self.random);
                self.table.plan(end, direction.to);
            }
            if direction.to == rank {
                direction.abandon(now, delay);
                self.table.plan(now + delay, direction.from);
            }
        }
        let noticed = now + below(&mut self.random, 4 * longest_delay + 1);
        self.notices.push((noticed, rank));
        self.table.plan_for_all(noticed);
        self.table.release(rank);
    }

    /// Thread `id` has no more turns.
    pub(super) fn end_thread(&mut self, id: usize) {
        self.table.threads[id].condition = ThreadCondition::Ended;
        self.table.change_host_of(self.table.threads[id].rank);
    }
}
