//! Makes a trace of recorded events. A recorder stores little; the rest is derived here, when
//! events are written.

use super::{EventKind, RecordedCall, RecordedEvent};
use crate::execute::Awaited;
use crate::lower::{Fold, FoldSource, Program, SourceLocation};
use crate::schedule::trace::{ArrowEnd, Fact, Slice, SliceKind, Trace, TraceLane};
use maypole_kernels::mix;

/// A message that one of its two ranks has completed.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord {
    /// The rank that sends it.
    pub from: usize,
    /// The rank that receives it.
    pub to: usize,
    /// True if its receiver records it, false if its sender does.
    pub received: bool,
    /// Its length.
    pub bytes: usize,
    /// Its tag.
    pub tag: u32,
    /// How many messages went from its sender to its receiver before it.
    pub number: u64,
    /// The index of its step in the schedule of its batch.
    pub step: usize,
}

/// Takes the place of a call's sequence number. Batches have no number, because messages are
/// numbered by pair.
const UNNUMBERED: u64 = u64::MAX;

/// The facts about a call that a recorder needs before the call runs.
#[derive(Debug)]
pub struct ProgramNotes {
    /// The call in words, with its counts.
    pub operation: String,
    /// The name of its algorithm.
    pub algorithm: &'static str,
    /// Bytes of the whole vector.
    pub bytes: usize,
    /// This rank.
    pub rank: usize,
    /// The ranks that share its board, ascending.
    pub locals: Vec<usize>,
    /// The program of this rank.
    pub program: Program,
}

impl ProgramNotes {
    /// The ranks whose data `fold` reads, in order.
    fn from(&self, fold: &Fold) -> Vec<usize> {
        self.sources(fold).iter().filter_map(|source| self.peer(source)).collect()
    }

    fn to(&self, fold: &Fold) -> Vec<usize> {
        self.readers(fold).chain(self.streams(fold).map(|stream| self.far(stream))).collect()
    }

    fn sources(&self, fold: &Fold) -> &[FoldSource] {
        &self.program.sources[fold.first as usize..fold.first as usize + fold.count as usize]
    }

    fn peer(&self, source: &FoldSource) -> Option<usize> {
        match source.from {
            SourceLocation::Own(_) => None,
            SourceLocation::Stream => Some(self.far(source.peer as usize)),
            SourceLocation::Board
            | SourceLocation::Peer(_)
            | SourceLocation::Lent(_)
            | SourceLocation::Pushed => Some(self.locals[source.peer as usize]),
        }
    }

    fn readers(&self, fold: &Fold) -> impl Iterator<Item = usize> {
        let audience = fold.audience;
        self.locals
            .iter()
            .enumerate()
            .filter(move |(at, _)| audience >> at & 1 == 1)
            .map(|(_, rank)| *rank)
    }

    fn streams(&self, fold: &Fold) -> impl Iterator<Item = usize> {
        self.program.posts[fold.posts.0 as usize..fold.posts.1 as usize]
            .iter()
            .map(|stream| *stream as usize)
    }

    fn far(&self, stream: usize) -> usize {
        self.program.streams[stream].peer as usize
    }
}

/// The trace of `events`, which are the events of whole calls.
pub(super) fn trace(lane: TraceLane, group: u64, events: &[RecordedEvent]) -> Trace {
    let mut trace = Trace { lanes: vec![lane], ..Trace::default() };
    let mut within = 0;
    for (at, event) in events.iter().enumerate() {
        let EventKind::Call { call, whole } = &event.what else { continue };
        trace.slices.push(call_slice(event, call));
        let mut call = CallTrace::new(&mut trace, call, group, *whole);
        events[within..at].iter().for_each(|event| call.add(event));
        within = at + 1;
    }
    trace
}

/// One call, while its events are added to a trace in order.
struct CallTrace<'a> {
    trace: &'a mut Trace,
    call: &'a RecordedCall,
    /// Equal on all ranks of the call, and different for any other call.
    id: u64,
    /// All events of the call were recorded, so it has arrows.
    whole: bool,
    /// Publications so far.
    published: u64,
    /// By stream: messages posted so far.
    posted: Vec<u64>,
    /// By stream: messages received so far.
    taken: Vec<u64>,
}

impl<'a> CallTrace<'a> {
    fn new(trace: &'a mut Trace, call: &'a RecordedCall, group: u64, whole: bool) -> Self {
        let (streams, sequence) = match call {
            RecordedCall::Program { notes, sequence } => (notes.program.streams.len(), *sequence),
            RecordedCall::Batch { .. } | RecordedCall::Writing => (0, UNNUMBERED),
        };
        let (id, none) = (mix(group ^ mix(sequence)), vec![0; streams]);
        Self { trace, call, id, whole, published: 0, posted: none.clone(), taken: none }
    }

    fn add(&mut self, event: &RecordedEvent) {
        match (&event.what, self.call) {
            (EventKind::Fold { fold, window, since }, RecordedCall::Program { notes, .. }) => {
                self.trace.slices.push(fold_slice(notes, event, *fold as usize, *window));
                self.arrows(notes, &notes.program.folds[*fold as usize], *window, *since);
            }
            (EventKind::Message { message, since }, _) => self.message(event, message, *since),
            _ => self.trace.slices.extend(waiting(event)),
        }
    }

    /// Adds one message. Its arrow begins before its last byte can have arrived and ends when that
    /// byte has arrived. A message of a rank to itself has no arrow.
    fn message(&mut self, event: &RecordedEvent, message: &MessageRecord, since: u64) {
        let MessageRecord { from, to, received, bytes, tag, number: nth, step } = *message;
        let (kind, name, ranks) = if received {
            (SliceKind::Receive, format!("receive from {from}"), ("from", numbers(&[from])))
        } else {
            (SliceKind::Send, format!("send to {to}"), ("to", numbers(&[to])))
        };
        let tag = ("tag", Fact::Number(tag.into()));
        let facts = vec![("bytes", number(bytes)), ranks, tag, ("step", number(step))];
        self.trace.slices.push(slice(event, kind, name, facts));
        if from != to {
            let at = if received { event.end.saturating_sub(1).max(event.start) } else { since };
            self.end((from, to, nth), at, received);
        }
    }

    /// Adds the ends of arrows. Arrows to a fold end, and arrows from it begin, when the last of
    /// its sources has arrived.
    fn arrows(&mut self, notes: &ProgramNotes, fold: &Fold, window: u32, since: u64) {
        let me = notes.rank;
        for source in notes.sources(fold) {
            let Some(peer) = notes.peer(source) else { continue };
            let nth = match source.from {
                // There is no message.
                SourceLocation::Lent(_) => continue,
                SourceLocation::Stream => next(&mut self.taken[source.peer as usize]),
                _ => notes.program.numberings[source.peer as usize].position(
                    source.publication,
                    source.stage,
                    window,
                ),
            };
            self.end((peer, me, nth), since, true);
        }
        for reader in notes.readers(fold) {
            self.end((me, reader, self.published), since, false);
        }
        self.published += u64::from(fold.audience != 0);
        for stream in notes.streams(fold) {
            let nth = next(&mut self.posted[stream]);
            self.end((me, notes.far(stream), nth), since, false);
        }
    }

    /// Adds one end of an arrow, if the call has arrows. No other message of any operation has its number.
    fn end(&mut self, (from, to, nth): (usize, usize, u64), at: u64, points_here: bool) {
        let words = [from as u64, to as u64, nth];
        let hash = |hash, word: u64| mix(hash ^ word.wrapping_add(1));
        let message = words.into_iter().fold(self.id, hash);
        if self.whole {
            self.trace.ends.push(ArrowEnd { message, lane: 0, at, points_here });
        }
    }
}

fn call_slice(event: &RecordedEvent, call: &RecordedCall) -> Slice {
    let (name, facts) = match call {
        RecordedCall::Program { notes, sequence } => {
            let ProgramNotes { operation, algorithm, bytes, program, .. } = &**notes;
            let facts = vec![
                ("sequence", Fact::Number(*sequence)),
                ("algorithm", Fact::Text((*algorithm).to_owned())),
                ("bytes", number(*bytes)),
                ("windows", Fact::Number(program.windows.into())),
            ];
            (operation.clone(), facts)
        }
        RecordedCall::Batch { operation, messages, bytes } => {
            (operation.clone(), vec![("bytes", number(*bytes)), ("messages", number(*messages))])
        }
        RecordedCall::Writing => ("write the trace".to_owned(), Vec::new()),
    };
    slice(event, SliceKind::Call, name, facts)
}

fn fold_slice(notes: &ProgramNotes, event: &RecordedEvent, step: usize, window: u32) -> Slice {
    let fold = &notes.program.folds[step];
    let (from, to) = (notes.from(fold), notes.to(fold));
    let kind = match (&from[..], &to[..], fold.count) {
        ([], [_, ..], 1) => SliceKind::Send,
        ([_], _, 1) => SliceKind::Receive,
        _ => SliceKind::Combine,
    };
    let facts = vec![
        ("bytes", number(fold.extent.window(window).1)),
        ("from", numbers(&from)),
        ("to", numbers(&to)),
        ("step", number(step)),
        ("window", Fact::Number(window.into())),
    ];
    slice(event, kind, name(fold, &from, &to), facts)
}

fn slice(
    event: &RecordedEvent,
    kind: SliceKind,
    name: String,
    facts: Vec<(&'static str, Fact)>,
) -> Slice {
    Slice { lane: 0, kind, name, start: event.start, end: event.end, mark: '~', facts }
}

fn number(number: usize) -> Fact {
    Fact::Number(number as u64)
}

fn numbers(ranks: &[usize]) -> Fact {
    Fact::Numbers(ranks.iter().map(|rank| *rank as u64).collect())
}

fn next(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter - 1
}

/// The slice of a wait, if `event` is one.
fn waiting(event: &RecordedEvent) -> Option<Slice> {
    let (name, peer) = match event.what {
        EventKind::Wait(Awaited::Arrival { from }) => (format!("wait for {from}"), Some(from)),
        EventKind::Wait(Awaited::Room) => ("wait for room".to_owned(), None),
        EventKind::Wait(Awaited::Departure { to }) => {
            (format!("wait until sent to {to}"), Some(to))
        }
        EventKind::FailedWait { peer: Some(peer) } => {
            (format!("wait for {peer} in vain"), Some(peer))
        }
        EventKind::FailedWait { peer: None } => ("wait in vain".to_owned(), None),
        _ => return None,
    };
    let facts = peer.map(|peer| ("peer", number(peer))).into_iter().collect();
    Some(slice(event, SliceKind::Wait, name, facts))
}

/// The name of a fold's slice: `combine own, 2, 3, send to 1`.
fn name(fold: &Fold, from: &[usize], to: &[usize]) -> String {
    let own = usize::from(fold.count) > from.len();
    let mut parts = Vec::new();
    match from {
        [] if fold.into.is_some() && fold.count == 1 => parts.push("copy".to_owned()),
        [] if fold.count == 1 => {}
        [] => parts.push("combine own".to_owned()),
        [_] if !own => parts.push(format!("receive from {}", ranks(from))),
        _ if own => parts.push(format!("combine own, {}", ranks(from))),
        _ => parts.push(format!("combine {}", ranks(from))),
    }
    if !to.is_empty() {
        parts.push(format!("send to {}", ranks(to)));
    }
    parts.join(", ")
}

/// `1, 2, 3`, or the number of ranks if there are more than four.
fn ranks(ranks: &[usize]) -> String {
    match ranks {
        [_, _, _, _, _, ..] => format!("{} ranks", ranks.len()),
        _ => ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
