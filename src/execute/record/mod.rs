//! The recorder: watches the executor of one rank and writes what it did to a file, as a
//! [trace](crate::schedule::trace).
//!
//! # What is recorded
//!
//! A slice for every call, in it one for every fold and window (of messages between two ranks, for
//! every message), and before these one for what they had to wait for. Waits of less than
//! [`SHORTEST_WAIT`] are part of the fold that follows. Arrows lead from the fold that publishes or
//! posts to every fold that takes it.
//!
//! # What it costs
//!
//! Two looks at the clock a fold, which is some 50 ns, and 48 bytes. When [`BATCH`] events have
//! come together they are written between two calls, which takes milliseconds and is itself
//! recorded. After [`MOST`] events the recorder says so and stops. So a rank holds at most 12 MiB
//! of events, and no file grows beyond some 100 MiB a rank.
//!
//! # What can go wrong
//!
//! Whatever keeps a file from being written is said once, on standard error, and ends the
//! recording; the calls go on.

mod file;
mod messages;
mod notes;

use crate::execute::{Awaited, Failure, Watch};
use crate::schedule::trace::{TraceLane, events};
pub use file::TraceFile;
use maypole_transports::clock::monotonic_ns;
pub use messages::Message;
pub use notes::Notes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events after which a rank writes what it has.
pub const BATCH: usize = 4096;
/// Events that a communicator records before it stops.
pub const MOST: usize = 1 << 18;
/// Nanoseconds below which a wait is not shown.
pub const SHORTEST_WAIT: u64 = 100;

/// Something that took time, in nanoseconds of this host.
#[derive(Clone, Debug)]
struct Event {
    start: u64,
    end: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A call, after all that happened in it.
    Call {
        notes: Arc<Notes>,
        sequence: u64,
        whole: bool,
    },
    /// A fold, and since when it had all that it awaited.
    Fold {
        fold: u32,
        window: u32,
        since: u64,
    },
    /// Messages that were posted together, after all that happened to them.
    Group(messages::Group),
    /// A message, and since when bytes moved that ended it.
    Message {
        message: Message,
        since: u64,
    },
    Wait(Awaited),
    /// The wait that did not end, for a rank if that is known.
    InVain {
        peer: Option<usize>,
    },
    /// Writing what was recorded before.
    Writing,
}

/// Records what one rank does in one group.
#[derive(Debug)]
pub struct Recorder {
    file: Arc<TraceFile>,
    /// Tells the lanes of this rank apart.
    lanes: Arc<AtomicU64>,
    /// The rank in the group that all others were split from.
    rank: usize,
    /// The same on all members of the group, another for other groups.
    group: u64,
    lane: TraceLane,
    events: Vec<Event>,
    /// How many more may come.
    left: usize,
    /// The end of the last event.
    last: u64,
    /// Since when the fold that comes next has all that it awaited.
    since: u64,
}

impl Recorder {
    /// For `rank` of a world, into `file`.
    pub fn new(rank: usize, file: Arc<TraceFile>) -> Self {
        Self::lane(rank, 0, "", file, Arc::default())
    }

    /// For a group that the rank has become a member of. `group` is the same on all of its members,
    /// and `name` says which it is.
    #[must_use]
    pub fn of_group(&self, group: u64, name: &str) -> Self {
        let group = mix(self.group ^ group.wrapping_add(1));
        Self::lane(self.rank, group, name, Arc::clone(&self.file), Arc::clone(&self.lanes))
    }

    fn lane(
        rank: usize,
        group: u64,
        part: &str,
        file: Arc<TraceFile>,
        lanes: Arc<AtomicU64>,
    ) -> Self {
        let lane = TraceLane {
            process: file.process() as u64 + 1,
            process_name: file.process_name().to_owned(),
            // Viewers want numbers that no other thread of any process has, and not 0.
            thread: (rank as u64 + 1) * 10_000 + lanes.fetch_add(1, Ordering::Relaxed),
            owner: format!("rank {rank}"),
            part: part.to_owned(),
        };
        let events = Vec::with_capacity(BATCH);
        Self { file, lanes, rank, group, lane, events, left: MOST, last: 0, since: 0 }
    }

    /// What the lane shows: empty for a world, the group's name for a group.
    pub fn name(&self) -> &str {
        &self.lane.part
    }

    /// Records operation `sequence`, which is what `run` does.
    ///
    /// # Errors
    /// Those of `run`.
    #[cold]
    #[inline(never)]
    pub fn call(
        &mut self,
        sequence: u64,
        notes: &Arc<Notes>,
        run: impl FnOnce(&mut Self) -> Result<(), Box<Failure>>,
    ) -> Result<(), Box<Failure>> {
        let call = |whole| What::Call { notes: Arc::clone(notes), sequence, whole };
        self.around(run, |failure| Some(failure.peer), call)
    }

    /// Records what `run` does within a `call` of its own, which is told whether all of it was
    /// recorded.
    fn around<E>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), E>,
        whom: impl FnOnce(&E) -> Option<usize>,
        call: impl FnOnce(bool) -> What,
    ) -> Result<(), E> {
        let start = self.now();
        (self.last, self.since) = (start, start);
        let done = run(self);
        let end = self.now();
        if let Err(failure) = &done {
            self.note(self.last, end, What::InVain { peer: whom(failure) });
        }
        let whole = self.left > 0;
        self.note(start, end, call(whole));
        if done.is_err() || self.events.len() >= BATCH || !whole {
            self.write();
        }
        done
    }

    /// Whether more can be recorded.
    pub fn is_recording(&self) -> bool {
        self.left > 0
    }

    fn note(&mut self, start: u64, end: u64, what: What) {
        self.last = end;
        // A call goes with what was recorded of it.
        if self.left > 0
            || (matches!(what, What::Call { .. } | What::Group(_)) && !self.events.is_empty())
        {
            self.left = self.left.saturating_sub(1);
            self.events.push(Event { start, end, what });
        }
    }

    /// What was awaited from the last event on.
    fn note_wait(&mut self, what: impl FnOnce() -> Awaited) {
        if self.since.saturating_sub(self.last) >= SHORTEST_WAIT {
            self.note(self.last, self.since, What::Wait(what()));
        }
    }

    fn now(&self) -> u64 {
        monotonic_ns().saturating_sub(self.file.origin())
    }

    /// Writes what there is. Once nothing more may come, says so.
    fn write(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let start = self.now();
        let text = events(&notes::trace(self.lane.clone(), self.group, &self.events));
        self.events.clear();
        self.events.shrink_to(BATCH);
        let written = self.file.append(&text);
        self.note(start, self.now(), What::Writing);
        if let Err(error) = written {
            self.left = 0;
            self.file.complain(&format!("the trace ends early: {error}"));
        } else if self.left == 0 {
            self.file
                .complain(&format!("rank {}'s trace ends here: it has {MOST} events", self.rank));
        }
    }
}

impl Watch for Recorder {
    fn awaited(&mut self, what: impl FnOnce() -> Awaited) {
        self.since = self.now();
        self.note_wait(what);
    }

    fn folded(&mut self, fold: usize, window: u32) {
        let (start, end, since) = (self.last, self.now(), self.since);
        self.note(start, end, What::Fold { fold: fold as u32, window, since });
        self.since = end;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.write();
    }
}

/// A number that only operation `sequence` of `group` has, on all of its ranks.
const fn operation(group: u64, sequence: u64) -> u64 {
    mix(group ^ mix(sequence))
}

/// The finishing steps of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
