//! The load of each link, round by round, from one walk over schedules.
//!
//! Consecutive sends to one rank are one message. A message is in the *round* after the last
//! message that it waits for, in conflict order. The walk counts the bytes that cross each link in
//! each round. It also sums the latencies along the longest chain of messages that wait for one
//! another.
//!
//! Where [equal hosts](EqualHosts) do the same, the walk takes the steps of the first alone. A link of
//! that host carries what it carries in the whole world, because each message stands for one of every
//! host, and each link of the host for one of every host.

use crate::predict::equal_hosts::EqualHosts;
use crate::predict::protocol::{MOST, WireProtocol};
use maypole::schedule::walk::{Meaning, Stuck, walk_board};
use maypole::schedule::{Placement, Schedule, Span, Step, Symmetry};
use maypole::topology::model::graph::Path;
use std::collections::HashMap;

/// How many chunks cross each link in a round, and by protocol the longest latency of a message of that
/// round.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageRound {
    /// By link. Links that nothing crosses are absent.
    pub(super) crossing: HashMap<usize, usize>,
    pub(super) latency: [f64; MOST],
}

/// How a rank sends to several others when all of these messages are ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SendOrder {
    /// All in one round: best where each message has its own link.
    Concurrent,
    /// One a round, in the order of the schedule: best where the messages share a link. Then the
    /// first receiver continues while the others wait.
    Sequential,
}

/// The load of schedules on a topology.
pub(super) struct LinkLoad<'a> {
    pub(super) rounds: Vec<MessageRound>,
    /// By protocol: the latency of the longest chain of messages, in seconds.
    pub(super) latency: [f64; MOST],
    /// The part of the whole that a chunk is.
    pub(super) chunk: f64,
    protocols: &'a [WireProtocol],
    pace: SendOrder,
    /// The hosts that do the same, if schedules are those of the first.
    hosts: Option<(&'a EqualHosts, Symmetry)>,
}

/// The links and the latencies between two ranks.
struct RankPath {
    /// Each with the number of times that a message crosses it, or those of all equal hosts together.
    links: Vec<(usize, usize)>,
    latency: [f64; MOST],
}

impl<'a> LinkLoad<'a> {
    pub(super) fn new(
        protocols: &'a [WireProtocol],
        pace: SendOrder,
        hosts: Option<(&'a EqualHosts, Symmetry)>,
    ) -> Self {
        Self { rounds: Vec::new(), latency: [0.0; MOST], chunk: 0.0, protocols, pace, hosts }
    }

    /// Adds the load of `schedules`, which run at the same time as those added before, with equally many
    /// chunks. These are equal parts of `share` of the whole. `path` is the path between two ranks.
    pub(super) fn add<E: From<Stuck>>(
        &mut self,
        schedules: &[Schedule],
        share: f64,
        path: impl FnMut(usize, usize) -> Result<Path, E>,
    ) -> Result<(), E> {
        let chunks = schedules.first().map_or(1, |schedule| schedule.chunks);
        self.chunk = share / chunks as f64;
        let symmetry = self
            .hosts
            .map_or((Symmetry::Rotation, 1), |(hosts, symmetry)| (symmetry, hosts.count()));
        let mut pass = LoadWalk {
            schedules,
            load: self,
            path,
            failed: None,
            hops: HashMap::new(),
            sent: HashMap::new(),
            last: vec![None; schedules.len()],
            spans: HashMap::new(),
        };
        let walked = walk_board(schedules, symmetry, Placement::Apart, &mut pass);
        pass.failed.map_or(Ok(()), Err)?;
        Ok(walked?)
    }

    fn round(&mut self, round: usize) -> &mut MessageRound {
        if self.rounds.len() <= round {
            self.rounds.resize_with(round + 1, MessageRound::default);
        }
        &mut self.rounds[round]
    }
}

/// The links that stand for `links`.
fn crossed(hosts: Option<(&EqualHosts, Symmetry)>, links: Vec<usize>) -> Vec<(usize, usize)> {
    links
        .into_iter()
        .map(|link| hosts.map_or((link, 1), |(hosts, _)| hosts.crossed(link)))
        .collect()
}

/// A point in time: the number of messages before it, and by protocol the sum of their latencies.
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

/// When a span was written last, and from when on it may be overwritten.
#[derive(Clone, Copy, Default)]
struct SpanTimes {
    written: MessageTime,
    free: MessageTime,
}

struct LoadWalk<'a, 'b, P, E> {
    schedules: &'a [Schedule],
    load: &'a mut LinkLoad<'b>,
    path: P,
    failed: Option<E>,
    hops: HashMap<(usize, usize), RankPath>,
    /// By pair of ranks: the round of the last message. The next message is not in an earlier one.
    sent: HashMap<(usize, usize), usize>,
    /// By rank: when its last message left.
    last: Vec<Option<MessageTime>>,
    /// By rank and span. Most of the spans of a world with many chunks are never used.
    spans: HashMap<(usize, Span), SpanTimes>,
}

impl<P: FnMut(usize, usize) -> Result<Path, E>, E> LoadWalk<'_, '_, P, E> {
    fn written(&self, rank: usize, span: Span) -> MessageTime {
        self.spans.get(&(rank, span)).map_or(MessageTime::default(), |times| times.written)
    }

    fn span(&mut self, rank: usize, span: Span) -> &mut SpanTimes {
        self.spans.entry((rank, span)).or_default()
    }

    /// Writes a span at `when` or later. Returns the time of the write.
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
                let latency = std::array::from_fn(latency);
                RankPath { latency, links: crossed(self.load.hosts, path.links) }
            }
            Err(error) => {
                failed.get_or_insert(error);
                RankPath { links: Vec::new(), latency: [0.0; MOST] }
            }
        })
    }
}

impl<P: FnMut(usize, usize) -> Result<Path, E>, E> Meaning for LoadWalk<'_, '_, P, E> {
    /// When the message left, and the span that it was sent from.
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
        let sent = self.sent.entry((rank, to)).or_default();
        moment.round = moment.round.max(*sent);
        if let (SendOrder::Sequential, Some(last)) = (self.load.pace, self.last[rank]) {
            moment.round = moment.round.max(last.round + 1);
        }
        *sent = moment.round;
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
        self.hop(from, rank);
        let hop = &self.hops[&(from, rank)];
        let round = self.load.round(left.round);
        for &(link, times) in &hop.links {
            *round.crossing.entry(link).or_default() += times;
        }
        round.latency = std::array::from_fn(|nth| round.latency[nth].max(hop.latency[nth]));
        let time = std::array::from_fn(|nth| left.time[nth] + hop.latency[nth]);
        let taken = self.write(rank, into, MessageTime { round: left.round + 1, time });
        self.read(from % self.schedules.len(), sent, taken);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, _: bool) {
        let when = self.written(rank, from);
        let end = self.write(rank, into, when);
        self.read(rank, from, end);
    }
}
