//! Makes a trace of recorded events. A recorder stores little; the rest is derived here, when
//! events are written.

use super::{EventKind, RecordedEvent, message, messages, numbers, operation, slice};
use crate::execute::Awaited;
use crate::lower::{Fold, FoldSource, Program, SourceLocation};
use crate::schedule::trace::{ArrowEnd, Fact, Slice, SliceKind, Trace, TraceLane, digit};

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
        match &event.what {
            EventKind::Call { notes, sequence, whole } => {
                let mut call = CallTrace::new(notes, operation(group, *sequence));
                trace.slices.push(call.slice(event, *sequence));
                for inner in &events[within..at] {
                    call.add(&mut trace, inner);
                }
                if *whole {
                    trace.ends.append(&mut call.ends);
                }
            }
            EventKind::Batch(batch) => {
                trace.slices.push(messages::batch_slice(event, batch));
                for inner in &events[within..at] {
                    match inner.what {
                        EventKind::Message { message, since } => {
                            messages::add(&mut trace, inner, message, since, group, batch.whole);
                        }
                        _ => trace.slices.extend(waiting(inner)),
                    }
                }
            }
            EventKind::Writing => trace.slices.push(slice(
                event,
                SliceKind::Call,
                "write the trace".to_owned(),
                Vec::new(),
            )),
            EventKind::Fold { .. }
            | EventKind::Message { .. }
            | EventKind::Wait(_)
            | EventKind::FailedWait { .. } => {
                continue;
            }
        }
        within = at + 1;
    }
    trace
}

/// One call, while its events are added in order.
struct CallTrace<'a> {
    notes: &'a ProgramNotes,
    /// Equal on all ranks of the call, and different for any other call.
    id: u64,
    /// Publications so far.
    published: u64,
    /// By stream: messages posted so far.
    posted: Vec<u64>,
    /// By stream: messages received so far.
    taken: Vec<u64>,
    ends: Vec<ArrowEnd>,
}

impl<'a> CallTrace<'a> {
    fn new(notes: &'a ProgramNotes, id: u64) -> Self {
        let none = vec![0; notes.program.streams.len()];
        Self { notes, id, published: 0, posted: none.clone(), taken: none, ends: Vec::new() }
    }

    fn slice(&self, event: &RecordedEvent, sequence: u64) -> Slice {
        let ProgramNotes { operation, algorithm, bytes, program, .. } = self.notes;
        let facts = vec![
            ("sequence", Fact::Number(sequence)),
            ("algorithm", Fact::Text((*algorithm).to_owned())),
            ("bytes", Fact::Number(*bytes as u64)),
            ("windows", Fact::Number(program.windows.into())),
        ];
        slice(event, SliceKind::Call, operation.clone(), facts)
    }

    fn add(&mut self, trace: &mut Trace, event: &RecordedEvent) {
        match event.what {
            EventKind::Fold { fold, window, since } => {
                trace.slices.push(self.fold(event, fold as usize, window));
                self.arrows(&self.notes.program.folds[fold as usize], window, since);
            }
            _ => trace.slices.extend(waiting(event)),
        }
    }

    fn fold(&self, event: &RecordedEvent, step: usize, window: u32) -> Slice {
        let fold = &self.notes.program.folds[step];
        let from = self.notes.from(fold);
        let to = self.notes.to(fold);
        let kind = match (&from[..], &to[..], fold.count) {
            ([], [_, ..], 1) => SliceKind::Send,
            ([_], _, 1) => SliceKind::Receive,
            _ => SliceKind::Combine,
        };
        let facts = vec![
            ("bytes", Fact::Number(fold.extent.window(window).1 as u64)),
            ("from", numbers(&from)),
            ("to", numbers(&to)),
            ("step", Fact::Number(step as u64)),
            ("window", Fact::Number(window.into())),
        ];
        let mark = from.first().or(to.first()).map_or('=', |rank| digit(*rank));
        Slice { mark, ..slice(event, kind, name(fold, &from, &to), facts) }
    }

    /// Adds the ends of arrows. Arrows to a fold end, and arrows from it begin, when the last of
    /// its sources has arrived.
    fn arrows(&mut self, fold: &Fold, window: u32, since: u64) {
        let notes = self.notes;
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

    fn end(&mut self, (from, to, nth): (usize, usize, u64), at: u64, points_here: bool) {
        self.ends.push(ArrowEnd {
            message: message(self.id, from, to, nth),
            lane: 0,
            at,
            points_here,
        });
    }
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
    let facts = peer.map(|peer| ("peer", Fact::Number(peer as u64))).into_iter().collect();
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
