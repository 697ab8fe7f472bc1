//! Turns, and the simulated clock.

use super::fault::{below, once_in};
use rand_xoshiro::SplitMix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar};

/// Polls of a wait when nothing else can happen any more. More than the library makes before it
/// checks whether the awaited peer has failed.
const QUIET_POLLS: u32 = 2048;
/// Microseconds in which nothing happens before threads poll many times for the second time. Each
/// further time takes twice as long.
const QUIET_PAUSE: u64 = 50_000;
/// Polls of a wait that begins to move bytes on links that it does not wait for.
const MANY_POLLS: u32 = 65;

#[derive(Debug)]
pub(super) struct ThreadState {
    pub(super) rank: usize,
    pub(super) condition: ThreadCondition,
    /// The count of changes for its rank when its last turn began.
    resumed: u64,
    /// When its last wait began.
    since: u64,
    /// It polls many times in its next turn, because nothing else can happen.
    quiet: bool,
    /// Woken when its turn begins.
    pub(super) wake: Arc<Condvar>,
}

/// The state of a thread between its turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ThreadCondition {
    /// It can run.
    Ready,
    /// It waits.
    Waiting {
        /// Its deadline.
        deadline: Option<u64>,
        /// The count of changes for its rank that its last poll has seen.
        seen: u64,
        /// When the wait began.
        since: u64,
    },
    Ended,
}

impl ThreadState {
    fn is_eligible(&self, changes: &[u64]) -> bool {
        match self.condition {
            ThreadCondition::Ready => true,
            ThreadCondition::Waiting { seen, .. } => seen < changes[self.rank] || self.quiet,
            ThreadCondition::Ended => false,
        }
    }

    fn deadline(&self) -> Option<u64> {
        match self.condition {
            ThreadCondition::Waiting { deadline, .. } => deadline,
            ThreadCondition::Ready | ThreadCondition::Ended => None,
        }
    }
}

/// The threads of a network, and its clock.
#[derive(Debug)]
pub(super) struct TurnTable {
    pub(super) threads: Vec<ThreadState>,
    pub(super) running: Option<usize>,
    /// Microseconds since the network was made.
    pub(super) clock: u64,
    pub(super) turns: u64,
    /// By rank: the host, whose ranks see each other's memory.
    hosts: Vec<usize>,
    /// By rank: events that a wait of the rank may wait for.
    changes: Vec<u64>,
    /// Changes to come: when, and for which rank.
    events: BinaryHeap<Reverse<(u64, usize)>>,
    /// The sum of all changes at which all threads polled many times.
    quiet_since: Option<u64>,
    /// How long nothing happens before they do so again.
    quiet_pause: u64,
}

impl TurnTable {
    /// A table without threads, for ranks on these hosts.
    pub(super) fn new(hosts: Vec<usize>) -> Self {
        Self {
            threads: Vec::new(),
            running: None,
            clock: 0,
            turns: 0,
            changes: vec![0; hosts.len()],
            hosts,
            events: BinaryHeap::new(),
            quiet_since: None,
            quiet_pause: QUIET_PAUSE,
        }
    }

    pub(super) fn add(&mut self, rank: usize) -> usize {
        self.threads.push(ThreadState {
            rank,
            condition: ThreadCondition::Ready,
            resumed: 0,
            since: 0,
            quiet: false,
            wake: Arc::default(),
        });
        self.threads.len() - 1
    }

    /// Records an event that a wait of `rank` may wait for.
    pub(super) fn change(&mut self, rank: usize) {
        self.changes[rank] += 1;
    }

    /// Records an event that any wait may wait for.
    pub(super) fn change_all(&mut self) {
        self.changes.iter_mut().for_each(|count| *count += 1);
    }

    /// Records that a rank may have written memory that the ranks of its host can read.
    pub(super) fn change_host_of(&mut self, rank: usize) {
        for (other, count) in self.changes.iter_mut().enumerate() {
            *count += u64::from(self.hosts[other] == self.hosts[rank]);
        }
    }

    /// Plans a change for `rank`.
    pub(super) fn plan(&mut self, time: u64, rank: usize) {
        self.events.push(Reverse((time, rank)));
    }

    /// Plans a change for all ranks.
    pub(super) fn plan_for_all(&mut self, time: u64) {
        (0..self.changes.len()).for_each(|rank| self.plan(time, rank));
    }

    /// Makes the changes that are due.
    fn make_due_changes(&mut self) {
        while let Some(Reverse((time, rank))) = self.events.peek().copied()
            && time <= self.clock
        {
            self.events.pop();
            self.change(rank);
        }
    }

    /// Thread `id` has polled without success, and waits.
    pub(super) fn idle(&mut self, id: usize, deadline: Option<u64>) {
        let thread = &mut self.threads[id];
        let seen = thread.resumed;
        let since = thread.since;
        thread.quiet = false;
        thread.condition = ThreadCondition::Waiting { deadline, seen, since };
    }

    /// The turn of thread `id` begins.
    pub(super) fn resume(&mut self, id: usize) {
        let thread = &mut self.threads[id];
        thread.condition = ThreadCondition::Ready;
        thread.resumed = self.changes[thread.rank];
    }

    /// How often thread `id` polls in this turn.
    pub(super) fn polls(&self, id: usize, random: &mut SplitMix64) -> u32 {
        match self.threads[id].quiet {
            true => QUIET_POLLS,
            false if once_in(random, 16) => MANY_POLLS,
            false => 1,
        }
    }

    /// True while thread `id` polls many times, because nothing else can happen.
    pub(super) fn is_quiet(&self, id: usize) -> bool {
        self.threads[id].quiet
    }

    /// A wait of thread `id` begins. Other threads see its earlier writes.
    pub(super) fn begin_wait(&mut self, id: usize) {
        self.threads[id].quiet = false;
        self.threads[id].since = self.clock;
        self.change_host_of(self.threads[id].rank);
    }

    /// All threads become runnable, regardless of their waits.
    pub(super) fn release_all(&mut self) {
        let alive = |thread: &&mut ThreadState| thread.condition != ThreadCondition::Ended;
        self.threads.iter_mut().filter(alive).for_each(|thread| {
            thread.condition = ThreadCondition::Ready;
        });
    }

    /// All threads of `rank` become runnable, regardless of their waits.
    pub(super) fn release(&mut self, rank: usize) {
        let of_rank = |thread: &&mut ThreadState| {
            thread.rank == rank && thread.condition != ThreadCondition::Ended
        };
        self.threads.iter_mut().filter(of_rank).for_each(|thread| {
            thread.condition = ThreadCondition::Ready;
        });
    }

    /// Chooses one of the runnable threads.
    pub(super) fn draw(&mut self, random: &mut SplitMix64) -> Option<usize> {
        self.make_due_changes();
        let eligible = || {
            let threads = self.threads.iter().enumerate();
            threads.filter(|(_, thread)| thread.is_eligible(&self.changes))
        };
        let count = eligible().count() as u64;
        if count == 0 {
            return None;
        }
        eligible().nth(below(random, count) as usize).map(|(id, _)| id)
    }

    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| thread.condition == ThreadCondition::Ended)
    }

    /// Lets time pass until something can happen: the next event, else many polls of each wait at
    /// growing intervals, else the first deadline. False if nothing can ever happen.
    pub(super) fn advance(&mut self) -> bool {
        if let Some(Reverse((time, _))) = self.events.peek().copied() {
            self.clock = self.clock.max(time);
            return true;
        }
        let Some(deadline) = self.threads.iter().filter_map(ThreadState::deadline).min() else {
            return self.look_once();
        };
        if self.look_once() {
            return true;
        }
        let look = self.clock + self.quiet_pause;
        self.quiet_pause *= 2;
        if look < deadline {
            self.clock = look;
            self.threads.iter_mut().for_each(|thread| thread.quiet = true);
        } else {
            self.clock = self.clock.max(deadline);
            self.change_all();
        }
        true
    }

    /// Lets all threads poll many times, unless they have done so since the last change.
    fn look_once(&mut self) -> bool {
        let changes = self.changes.iter().sum();
        if self.quiet_since == Some(changes) {
            return false;
        }
        self.quiet_since = Some(changes);
        self.quiet_pause = QUIET_PAUSE;
        self.threads.iter_mut().for_each(|thread| thread.quiet = true);
        true
    }
}
