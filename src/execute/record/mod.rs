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
mod notes;

use crate::execute::{Awaited, ExecuteError, RunObserver};
use crate::schedule::trace::{TraceLane, events};
pub use file::TraceFile;
use maypole_kernels::mix;
use maypole_transports::OwnerProcess;
use maypole_transports::clock::monotonic_ns;
pub use notes::{MessageRecord, ProgramNotes};
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
    Call { call: RecordedCall, whole: bool },
    /// A window of a fold; `since` is the time at which the last of its sources had arrived.
    Fold { fold: u32, window: u32, since: u64 },
    /// A message; `since` is the time at which its last bytes began to move.
    Message { message: MessageRecord, since: u64 },
    /// A wait.
    Wait(Awaited),
    /// A wait that ended in an error, with the awaited rank if there is one.
    FailedWait { peer: Option<usize> },
}

/// What a rank does at a time.
#[derive(Clone, Debug)]
pub(crate) enum RecordedCall {
    /// A program, as the operation of this number.
    Program { notes: Arc<ProgramNotes>, sequence: u64 },
    /// All messages that one call posted together: in words, how many, and their bytes.
    Batch { operation: String, messages: usize, bytes: usize },
    /// The recorder writes earlier events.
    Writing,
}

/// Records the events of one rank in one group.
#[derive(Debug)]
pub struct Recorder {
    file: Arc<TraceFile>,
    /// The name of the trace, as the program gave it.
    trace: Arc<str>,
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
    /// The time at which the call began.
    begun: u64,
    /// The end of the last event.
    last: u64,
    /// The time at which the last source of the next fold had arrived.
    since: u64,
}

impl Recorder {
    /// Makes a recorder for `rank` of a world, which writes to `file` of the trace of this name.
    pub fn new(rank: usize, trace: &str, file: TraceFile) -> Self {
        Self::lane((rank, 0), String::new(), trace.into(), Arc::new(file), Arc::default())
    }

    /// Makes a recorder for the `number`-th group that was split from this one, whose first member
    /// has this rank here.
    #[must_use]
    pub fn of_group(&self, number: u64, first_member: usize) -> Self {
        let part = match &*self.lane.part {
            "" => format!("group {number}"),
            outer => format!("{outer}.{number}"),
        };
        // Groups of one split have disjoint members, so the first member identifies the group.
        let group = (number << 32) ^ first_member as u64;
        let group = mix(self.group ^ group.wrapping_add(1));
        let (trace, file) = (Arc::clone(&self.trace), Arc::clone(&self.file));
        Self::lane((self.rank, group), part, trace, file, Arc::clone(&self.lanes))
    }

    fn lane(
        (rank, group): (usize, u64),
        part: String,
        trace: Arc<str>,
        file: Arc<TraceFile>,
        lanes: Arc<AtomicU64>,
    ) -> Self {
        let lane = TraceLane {
            process: file.process as u64 + 1,
            process_name: file.process_name.clone(),
            // Viewers need numbers that are unique among the threads of all processes, and not 0.
            thread: (rank as u64 + 1) * 10_000 + lanes.fetch_add(1, Ordering::Relaxed),
            owner: format!("rank {rank}"),
            part,
        };
        let events = Vec::with_capacity(BATCH);
        let owner = OwnerProcess::current();
        let (left, begun, last, since) = (MOST, 0, 0, 0);
        Self { file, trace, lanes, rank, owner, group, lane, events, left, begun, last, since }
    }

    /// The name of the trace.
    pub fn trace(&self) -> &str {
        &self.trace
    }

    pub(crate) fn begin(&mut self) {
        self.begun = self.now();
        self.last = self.begun;
        self.since = self.begun;
    }

    /// The call ends. If it has failed, `failed` is the rank that its error names, if it names one.
    #[cold]
    pub(crate) fn end(&mut self, call: RecordedCall, failed: Option<Option<usize>>) {
        let end = self.now();
        if let Some(peer) = failed {
            self.note(self.last, end, EventKind::FailedWait { peer });
        }
        let whole = self.left > 0;
        self.note(self.begun, end, EventKind::Call { call, whole });
        if failed.is_some() || self.events.len() >= BATCH || !whole {
            self.write();
        }
    }

    /// Called before bytes of messages are moved: the time until now was a wait.
    pub(crate) fn about_to_move(&mut self) {
        self.since = self.now();
    }

    /// Records a message that the bytes moved since [`about_to_move`](Self::about_to_move) have
    /// completed.
    pub(crate) fn message(&mut self, message: MessageRecord) {
        let MessageRecord { from, to, received, .. } = message;
        self.note_wait(|| match received {
            true => Awaited::Arrival { from },
            false => Awaited::Departure { to },
        });
        let (start, since) = (self.last, self.since);
        self.note(start, self.now(), EventKind::Message { message, since });
    }

    /// True if more events can be recorded.
    pub fn is_recording(&self) -> bool {
        self.left > 0
    }

    fn note(&mut self, start: u64, end: u64, what: EventKind) {
        self.last = end;
        // The events of a call cannot be shown without the call, so the call is always recorded.
        let ends_call = matches!(what, EventKind::Call { .. });
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
        let call = RecordedCall::Writing;
        self.note(start, self.now(), EventKind::Call { call, whole: true });
        if let Err(error) = written {
            self.left = 0;
            self.file.complain(&format!("the trace ends early: {error}"));
        } else if self.left == 0 {
            self.file
                .complain(&format!("rank {}'s trace ends here: it has {MOST} events", self.rank));
        }
    }
}

/// Runs operation `sequence` by `run`, which receives `recorder` as its observer if that records
/// and has `notes` of the program.
pub(crate) fn record_call(
    recorder: Option<&mut Recorder>,
    (sequence, notes): (u64, Option<&Arc<ProgramNotes>>),
    run: impl FnOnce(Option<&mut Recorder>) -> Result<(), Box<ExecuteError>>,
) -> Result<(), Box<ExecuteError>> {
    let recorder = recorder.filter(|recorder| recorder.is_recording());
    let (Some(recorder), Some(notes)) = (recorder, notes) else { return run(None) };
    recorder.begin();
    let done = run(Some(recorder));
    let failed = done.as_ref().err().map(|error| Some(error.peer));
    recorder.end(RecordedCall::Program { notes: Arc::clone(notes), sequence }, failed);
    done
}

/// Records the run, if there is a recorder.
impl RunObserver for Option<&mut Recorder> {
    fn awaited(&mut self, awaited: impl FnOnce() -> Awaited) {
        if let Some(recorder) = self {
            recorder.about_to_move();
            recorder.note_wait(awaited);
        }
    }

    fn folded(&mut self, fold: usize, window: u32) {
        if let Some(recorder) = self {
            let (start, since, end) = (recorder.last, recorder.since, recorder.now());
            recorder.note(start, end, EventKind::Fold { fold: fold as u32, window, since });
            recorder.since = end;
        }
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
