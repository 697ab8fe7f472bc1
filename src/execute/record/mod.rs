//! The recorder: writes the events of one rank's executor to a file, as a
//! [trace](crate::schedule::trace).
//!
//! # Events
//!
//! Each call is a slice. It contains a slice for each window of each fold, or for each message
//! between two ranks, and a slice for each wait before them. Waits of less than [`SHORTEST_WAIT`]
//! are part of the fold that follows. Arrows lead from the fold that publishes or posts a result to
//! every fold that reads it.
//!
//! # Cost
//!
//! A fold costs two readings of the clock, about 50 ns, and 48 bytes. Once there are [`BATCH`]
//! events, they are written between two calls; that takes milliseconds and is recorded, too. After
//! [`MOST`] events the recorder prints a note and stops. So a rank holds at most 12 MiB of events,
//! and a file grows to about 100 MiB a rank at most.
//!
//! While nothing is recorded it costs nothing. Whether calls are recorded or timed is checked on
//! the path that a changed call takes anyway: while recording is on, no call counts as a
//! repetition. With a check in every call, an all-reduce of 8 bytes between two ranks took 0.086 us
//! at best; it takes 0.078 us.
//!
//! # Failures
//!
//! If the file cannot be written, the recorder reports it once, on standard error, and stops. The
//! calls continue.

mod file;
mod messages;
mod notes;

use crate::execute::{Awaited, ExecuteError, RunObserver};
use crate::schedule::trace::{Fact, Slice, SliceKind, TraceLane, events};
pub use file::TraceFile;
use maypole_kernels::mix;
use maypole_transports::OwnerProcess;
use maypole_transports::clock::monotonic_ns;
pub use messages::MessageRecord;
pub use notes::ProgramNotes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events after which a rank writes to the file.
pub const BATCH: usize = 4096;
/// Events that a communicator records before it stops.
pub const MOST: usize = 1 << 18;
/// Nanoseconds below which a wait is not shown.
pub const SHORTEST_WAIT: u64 = 100;

/// An event, with its times in nanoseconds of this host's clock.
#[derive(Clone, Debug)]
struct RecordedEvent {
    start: u64,
    end: u64,
    what: EventKind,
}

#[derive(Clone, Debug)]
enum EventKind {
    /// A call. It follows its own events; `whole` is true if all of them were recorded.
    Call {
        notes: Arc<ProgramNotes>,
        sequence: u64,
        whole: bool,
    },
    /// A window of a fold; `since` is the time at which the last of its sources had arrived.
    Fold {
        fold: u32,
        window: u32,
        since: u64,
    },
    /// A batch of messages. It follows its own events.
    Batch(messages::BatchRecord),
    /// A message; `since` is the time at which its last bytes began to move.
    Message {
        message: MessageRecord,
        since: u64,
    },
    Wait(Awaited),
    /// A wait that ended in an error, with the awaited rank if known.
    FailedWait {
        peer: Option<usize>,
    },
    /// The time that it took to write earlier events.
    Writing,
}

/// Records the events of one rank in one group.
#[derive(Debug)]
pub struct Recorder {
    file: Arc<TraceFile>,
    /// Lanes of this rank so far; each lane has a number of its own.
    lanes: Arc<AtomicU64>,
    /// The rank in the group that all others were split from.
    rank: usize,
    owner: OwnerProcess,
    /// The number of the group: equal on all of its members, and different for every other group.
    group: u64,
    lane: TraceLane,
    events: Vec<RecordedEvent>,
    /// Events that may still be recorded.
    left: usize,
    /// The end of the last event.
    last: u64,
    /// The time at which the last source of the next fold had arrived.
    since: u64,
}

impl Recorder {
    /// Makes a recorder for `rank` of a world, which writes to `file`.
    pub fn new(rank: usize, file: Arc<TraceFile>) -> Self {
        Self::lane(rank, 0, "", file, Arc::default())
    }

    /// Makes a recorder for a group that was split from this one. `group` is equal on all of its
    /// members; `name` is shown.
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
            process: file.process as u64 + 1,
            process_name: file.process_name.clone(),
            // Viewers need numbers that are unique among the threads of all processes, and not 0.
            thread: (rank as u64 + 1) * 10_000 + lanes.fetch_add(1, Ordering::Relaxed),
            owner: format!("rank {rank}"),
            part: part.to_owned(),
        };
        let events = Vec::with_capacity(BATCH);
        let owner = OwnerProcess::current();
        Self { file, lanes, rank, owner, group, lane, events, left: MOST, last: 0, since: 0 }
    }

    /// The name of the group; empty for a world.
    pub fn name(&self) -> &str {
        &self.lane.part
    }

    /// Records operation `sequence`, which `run` executes.
    ///
    /// # Errors
    /// Those of `run`.
    #[cold]
    #[inline(never)]
    pub fn call(
        &mut self,
        sequence: u64,
        notes: &Arc<ProgramNotes>,
        run: impl FnOnce(&mut Self) -> Result<(), Box<ExecuteError>>,
    ) -> Result<(), Box<ExecuteError>> {
        let call = |whole| EventKind::Call { notes: Arc::clone(notes), sequence, whole };
        self.record(run, |error| Some(error.peer), call)
    }

    /// Records what `run` does, and then the event that `call` makes. The argument of `call` is
    /// whether all events of the run were recorded.
    fn record<E>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), E>,
        peer: impl FnOnce(&E) -> Option<usize>,
        call: impl FnOnce(bool) -> EventKind,
    ) -> Result<(), E> {
        let start = self.now();
        self.last = start;
        self.since = start;
        let done = run(self);
        let end = self.now();
        if let Err(error) = &done {
            self.note(self.last, end, EventKind::FailedWait { peer: peer(error) });
        }
        let whole = self.left > 0;
        self.note(start, end, call(whole));
        if done.is_err() || self.events.len() >= BATCH || !whole {
            self.write();
        }
        done
    }

    /// True if more events can be recorded.
    pub fn is_recording(&self) -> bool {
        self.left > 0
    }

    fn note(&mut self, start: u64, end: u64, what: EventKind) {
        self.last = end;
        // The events of a call cannot be shown without the call, so the call is always recorded.
        let ends_call = matches!(what, EventKind::Call { .. } | EventKind::Batch(_));
        if self.left > 0 || (ends_call && !self.events.is_empty()) {
            self.left = self.left.saturating_sub(1);
            self.events.push(RecordedEvent { start, end, what });
        }
    }

    /// Records the wait since the last event, unless it was short.
    fn note_wait(&mut self, what: impl FnOnce() -> Awaited) {
        if self.since.saturating_sub(self.last) >= SHORTEST_WAIT {
            self.note(self.last, self.since, EventKind::Wait(what()));
        }
    }

    fn now(&self) -> u64 {
        monotonic_ns().saturating_sub(self.file.origin)
    }

    /// Writes the recorded events. If the recorder has stopped, reports that.
    fn write(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let start = self.now();
        let text = events(&notes::trace(self.lane.clone(), self.group, &self.events));
        self.events.clear();
        self.events.shrink_to(BATCH);
        let written = self.file.append(&text);
        self.note(start, self.now(), EventKind::Writing);
        if let Err(error) = written {
            self.left = 0;
            self.file.complain(&format!("the trace ends early: {error}"));
        } else if self.left == 0 {
            self.file
                .complain(&format!("rank {}'s trace ends here: it has {MOST} events", self.rank));
        }
    }
}

impl RunObserver for Recorder {
    fn awaited(&mut self, awaited: impl FnOnce() -> Awaited) {
        self.since = self.now();
        self.note_wait(awaited);
    }

    fn folded(&mut self, fold: usize, window: u32) {
        let start = self.last;
        let end = self.now();
        let since = self.since;
        self.note(start, end, EventKind::Fold { fold: fold as u32, window, since });
        self.since = end;
    }
}

impl Drop for Recorder {
    /// In a forked child the events belong to the parent, which writes them.
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.write();
        }
    }
}

/// A number that operation `sequence` of `group` has on all ranks of the group, and that no other
/// operation has.
const fn operation(group: u64, sequence: u64) -> u64 {
    mix(group ^ mix(sequence))
}

/// A number that no other message of any operation has.
fn message(operation: u64, from: usize, to: usize, nth: u64) -> u64 {
    let words = [from as u64, to as u64, nth];
    words.into_iter().fold(operation, |hash, word| mix(hash ^ word.wrapping_add(1)))
}

fn numbers(ranks: &[usize]) -> Fact {
    Fact::Numbers(ranks.iter().map(|rank| *rank as u64).collect())
}

fn slice(
    event: &RecordedEvent,
    kind: SliceKind,
    name: String,
    facts: Vec<(&'static str, Fact)>,
) -> Slice {
    Slice { lane: 0, kind, name, start: event.start, end: event.end, mark: '~', facts }
}
