//! How much crosses which link, and when: one walk over schedules.
//!
//! Consecutive sends to one rank are one message. Messages are sorted into *rounds*: a message is
//! in the round after the last one that it waits for, in conflict order. Counted are, round by
//! round, the bytes that cross each link, and along the longest chain of messages that wait for one
//! another the seconds that they are under way.

use crate::schedule::walk::{Meaning, Stuck, walk};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};
use crate::topology::model::graph::{Path, Topology};
use crate::topology::predict::protocol::{MOST, WireProtocol};
use std::collections::HashMap;

/// The part of the whole that crosses each link in a round, and for each protocol the longest time
/// that one of its messages is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageRound {
    pub(super) crossing: Vec<f64>,
    pub(super) latency: [f64; MOST],
}

/// When a rank sends what it could send to several others at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SendOrder {
    /// At once: best where each has a link of its own.
    Concurrent,
    /// One a round, in the order of its list: best where all share one, and the first to be served
    /// goes on meanwhile.
    Sequential,
}

/// What a schedule makes of a topology.
pub(super) struct LinkLoad<'a> {
    pub(super) rounds: Vec<MessageRound>,
    /// For each protocol: the longest chain of messages, without their bytes.
    pub(super) latency: [f64; MOST],
    topology: &'a Topology,
    protocols: &'a [WireProtocol],
    pace: SendOrder,
}

/// What lies between two places.
struct RankPath {
    links: Vec<usize>,
    latency: [f64; MOST],
}

impl<'a> LinkLoad<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        protocols: &'a [WireProtocol],
        pace: SendOrder,
    ) -> Self {
        Self { rounds: Vec::new(), latency: [0.0; MOST], topology, protocols, pace }
    }

    /// Adds what `schedules` move, all at the same time as what was added before, if chunks are
    /// equal parts of `share` of the whole and `path` says what lies between two places.
    pub(super) fn add<E: From<Stuck>>(
        &mut self,
        schedules: &[Schedule],
        share: f64,
        path: impl FnMut(usize, usize) -> Result<Path, E>,
    ) -> Result<(), E> {
        let chunks = schedules.first().map_or(1, |schedule| schedule.chunks);
        let world = schedules.len();
        let mut pass = LoadWalk {
            schedules,
            load: self,
            chunk: share / chunks as f64,
            chunks,
            world,
            path,
            failed: None,
            hops: HashMap::new(),
            sent: vec![0; world * world],
            last: vec![None; world],
            spans: schedules
                .iter()
                .map(|s| vec![SpanTimes::default(); 2 * chunks + s.scratch])
                .collect(),
        };
        let walked = walk(schedules, Placement::Apart, &mut pass);
        pass.failed.map_or(Ok(()), Err)?;
        Ok(walked?)
    }

    fn round(&mut self, round: usize) -> &mut MessageRound {
        if self.rounds.len() <= round {
            let links = self.topology.links().len();
            let empty = || MessageRound { crossing: vec![0.0; links], latency: [0.0; MOST] };
            self.rounds.resize_with(round + 1, empty);
        }
        &mut self.rounds[round]
    }
}

/// A point in time: how many messages lie before it, and for how long they were under way.
#[derive(Clone, Copy, Default)]
struct MessageTime {
    round: usize,
    time: [f64; MOST],
}

impl MessageTime {
    fn max(self, other: Self) -> Self {
        let time = std::array::from_fn(|nth| self.time[nth].max(other.time[nth]));
        Self { round: self.round.max(other.round), time }
    }
}

/// Since when a span is what it is, and since when it may be overwritten.
#[derive(Clone, Copy, Default)]
struct SpanTimes {
    written: MessageTime,
    free: MessageTime,
}

struct LoadWalk<'a, 'b, P, E> {
    schedules: &'a [Schedule],
    load: &'a mut LinkLoad<'b>,
    chunk: f64,
    chunks: usize,
    world: usize,
    path: P,
    failed: Option<E>,
    hops: HashMap<(usize, usize), RankPath>,
    /// By link between two places: the round of the last message, which the next one does not
    /// overtake.
    sent: Vec<usize>,
    /// By place: when its last message left.
    last: Vec<Option<MessageTime>>,
    spans: Vec<Vec<SpanTimes>>,
}

impl<P: FnMut(usize, usize) -> Result<Path, E>, E> LoadWalk<'_, '_, P, E> {
    fn index(&self, span: Span) -> usize {
        let row = match span.buffer {
            Buffer::Input => 0,
            Buffer::Output => self.chunks,
            Buffer::Scratch => 2 * self.chunks,
        };
        row + span.chunk
    }

    fn written(&self, rank: usize, span: Span) -> MessageTime {
        self.spans[rank][self.index(span)].written
    }

    fn span(&mut self, rank: usize, span: Span) -> &mut SpanTimes {
        let index = self.index(span);
        &mut self.spans[rank][index]
    }

    /// A step that ends `when` at the earliest overwrites a span; when it does.
    fn write(&mut self, rank: usize, into: Span, when: MessageTime) -> MessageTime {
        let span = self.span(rank, into);
        span.written = when.max(span.written).max(span.free);
        span.free = MessageTime::default();
        let end = span.written;
        for (longest, time) in self.load.latency.iter_mut().zip(end.time) {
            *longest = longest.max(time);
        }
        end
    }

    fn read(&mut self, rank: usize, from: Span, when: MessageTime) {
        let span = self.span(rank, from);
        span.free = span.free.max(when);
    }

    fn hop(&mut self, from: usize, to: usize) -> &RankPath {
        let path = &mut self.path;
        let failed = &mut self.failed;
        let protocols = self.load.protocols;
        self.hops.entry((from, to)).or_insert_with(|| match path(from, to) {
            Ok(path) => {
                let latency =
                    |nth: usize| protocols.get(nth).map_or(0.0, |protocol| protocol.latency(&path));
                RankPath { latency: std::array::from_fn(latency), links: path.links }
            }
            Err(error) => {
                failed.get_or_insert(error);
                RankPath { links: Vec::new(), latency: [0.0; MOST] }
            }
        })
    }
}

impl<P: FnMut(usize, usize) -> Result<Path, E>, E> Meaning for LoadWalk<'_, '_, P, E> {
    /// When it left, and what it left from.
    type Message = (MessageTime, Span);

    fn send(&mut self, rank: usize, step: usize, from: Span, to: usize) -> Self::Message {
        let steps = &self.schedules[rank].steps;
        let sent = |step: &Step| match step {
            Step::Send { from, to: peer } if *peer == to => Some(*from),
            _ => None,
        };
        let goes_on = step.checked_sub(1).and_then(|before| sent(&steps[before])).is_some();
        if let Some(moment) = self.last[rank].filter(|_| goes_on) {
            return (moment, from);
        }
        let ready = steps[step..].iter().map_while(sent).map(|span| self.written(rank, span));
        let mut moment = ready.fold(MessageTime::default(), MessageTime::max);
        let link = rank * self.world + to;
        moment.round = moment.round.max(self.sent[link]);
        if let (SendOrder::Sequential, Some(last)) = (self.load.pace, self.last[rank]) {
            moment.round = moment.round.max(last.round + 1);
        }
        self.sent[link] = moment.round;
        self.last[rank] = Some(moment);
        (moment, from)
    }

    fn receive(
        &mut self,
        rank: usize,
        _: usize,
        into: Span,
        from: usize,
        (left, sent): Self::Message,
        _: bool,
    ) {
        let chunk = self.chunk;
        self.hop(from, rank);
        let hop = &self.hops[&(from, rank)];
        let round = self.load.round(left.round);
        for &link in &hop.links {
            round.crossing[link] += chunk;
        }
        round.latency = std::array::from_fn(|nth| round.latency[nth].max(hop.latency[nth]));
        let time = std::array::from_fn(|nth| left.time[nth] + hop.latency[nth]);
        let taken = self.write(rank, into, MessageTime { round: left.round + 1, time });
        self.read(from, sent, taken);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, _: bool) {
        let when = self.written(rank, from);
        let end = self.write(rank, into, when);
        self.read(rank, from, end);
    }
}
