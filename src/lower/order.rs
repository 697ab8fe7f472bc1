//! The order in which folds run: the send that each receive takes, the number of hops before each
//! fold, and whether all programs together complete with a given number of slots.

use super::fuse::{FusedFold, Origin};
use crate::schedule::hosts::Boards;
use crate::schedule::{Placement, Span};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// By rank and fold: for each remote source, in order, the fold of its sender that sends it.
#[derive(Clone)]
pub(super) struct Matching(Vec<Vec<Vec<usize>>>);

impl Matching {
    /// Counts along the links: the n-th receive from a peer is the n-th send of that peer to us.
    /// `None` if a receive has no send or a send no receive.
    pub(super) fn new(all: &[Vec<FusedFold>]) -> Option<Self> {
        let mut links: HashMap<(usize, usize), VecDeque<usize>> = HashMap::new();
        for (rank, folds) in all.iter().enumerate() {
            for (at, fold) in folds.iter().enumerate() {
                for to in &fold.to {
                    links.entry((rank, *to)).or_default().push_back(at);
                }
            }
        }
        let mut matching = Vec::with_capacity(all.len());
        for (rank, folds) in all.iter().enumerate() {
            let mut senders = Vec::with_capacity(folds.len());
            for fold in folds {
                let of_fold = fold.remotes().map(|peer| links.get_mut(&(peer, rank))?.pop_front());
                senders.push(of_fold.collect::<Option<Vec<_>>>()?);
            }
            matching.push(senders);
        }
        links.values().all(VecDeque::is_empty).then_some(Self(matching))
    }

    /// The remote sources of fold `at` of `rank`: (peer, the peer's fold).
    pub(super) fn senders<'a>(
        &'a self,
        all: &'a [Vec<FusedFold>],
        rank: usize,
        at: usize,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        all[rank][at].remotes().zip(self.0[rank][at].iter().copied())
    }
}

/// How many hops lie before each fold of each rank: the skew of the software pipeline. `None` if
/// windows that overlap in this way would overtake one another on some link; then windows must run
/// one after another.
pub(super) fn stages(all: &[Vec<FusedFold>], matching: &Matching) -> Option<Vec<Vec<u32>>> {
    let mut ranks: Vec<Staging> = all.iter().map(|_| Staging::default()).collect();
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for rank in 0..all.len() {
            while let Some(fold) = all[rank].get(ranks[rank].stages.len()) {
                let at = ranks[rank].stages.len();
                let arrives =
                    matching.senders(all, rank, at).try_fold(0, |latest, (peer, sent)| {
                        ranks[peer].stages.get(sent).map(|stage: &u32| latest.max(stage + 1))
                    });
                let Some(arrives) = arrives else { break };
                ranks[rank].push(fold, arrives);
                moved = true;
            }
        }
    }
    let stages: Vec<Vec<u32>> = ranks.into_iter().map(|r| r.stages).collect();
    let complete = stages.iter().zip(all).all(|(stages, folds)| stages.len() == folds.len());
    (complete && keeps_link_order(all, matching, &stages)).then_some(stages)
}

/// The stages of one rank so far, and the stages that a later fold must not precede.
#[derive(Default)]
struct Staging {
    stages: Vec<u32>,
    written: HashMap<Span, u32>,
    read: HashMap<Span, u32>,
    sent: HashMap<usize, u32>,
    taken: HashMap<usize, u32>,
}

impl Staging {
    /// Conflicts are those of the in-place call, which has the most: publications must not
    /// depend on placement.
    fn push(&mut self, fold: &FusedFold, arrives: u32) {
        let place = |span: Span| span.in_place(Placement::InPlace);
        let spans = fold.sources.iter().filter_map(|source| match source {
            Origin::Local(span) => Some(place(*span)),
            Origin::Remote(_) => None,
        });
        let into = fold.into.map(place);
        let mut stage = arrives;
        let mut after = |earlier: Option<&u32>| stage = stage.max(earlier.copied().unwrap_or(0));
        spans.clone().chain(into).for_each(|span| after(self.written.get(&span)));
        into.iter().for_each(|span| after(self.read.get(span)));
        fold.to.iter().for_each(|peer| after(self.sent.get(peer)));
        fold.remotes().for_each(|peer| after(self.taken.get(&peer)));
        // A later fold that reads may have a lower stage than an earlier one. A fold that writes
        // waits for all of them.
        spans.for_each(|span| {
            let read = self.read.entry(span).or_default();
            *read = stage.max(*read);
        });
        into.iter().for_each(|span| *self.written.entry(*span).or_default() = stage);
        fold.to.iter().for_each(|peer| *self.sent.entry(*peer).or_default() = stage);
        fold.remotes().for_each(|peer| *self.taken.entry(peer).or_default() = stage);
        self.stages.push(stage);
    }
}

/// True if both ends of every link see its messages in the same order while windows overlap: all
/// messages of a link have the same delay in stages.
fn keeps_link_order(all: &[Vec<FusedFold>], matching: &Matching, stages: &[Vec<u32>]) -> bool {
    let mut delays: HashMap<(usize, usize), u32> = HashMap::new();
    for (rank, folds) in all.iter().enumerate() {
        for at in 0..folds.len() {
            for (peer, sent) in matching.senders(all, rank, at) {
                let delay = stages[rank][at] - stages[peer][sent];
                if *delays.entry((peer, rank)).or_insert(delay) != delay {
                    return false;
                }
            }
        }
    }
    true
}

/// All ranks' folds with everything that decides whether they complete.
pub(super) struct Trial<'a> {
    pub(super) all: &'a [Vec<FusedFold>],
    pub(super) matching: &'a Matching,
    pub(super) stages: &'a [Vec<u32>],
    pub(super) boards: &'a Boards,
    pub(super) placement: Placement,
    pub(super) windows: u32,
    /// Slots of each rank's ring.
    pub(super) depth: u64,
}

impl Trial<'_> {
    /// Runs all programs on counters: true if no order of events can leave them waiting for one
    /// another. The trial has enough windows for every ring of slots to wrap while all stages are
    /// busy; more windows would only repeat that.
    pub(super) fn completes(&self) -> bool {
        let deepest = self.stages.iter().flatten().max().copied().unwrap_or(0);
        let windows = self.windows.min(deepest + self.depth as u32 + 2);
        let orders: Vec<Vec<(usize, u32)>> =
            self.stages.iter().map(|stages| clock_order(stages, windows, deepest)).collect();
        let world = self.all.len();
        let mut run = TrialRun::new(self);
        let mut ready: VecDeque<usize> = (0..world).collect();
        let mut left: usize = orders.iter().map(Vec::len).sum();
        let mut idle = 0;
        while let Some(rank) = ready.pop_front() {
            let before = left;
            while let Some((at, k)) = orders[rank].get(run.at[rank]).copied() {
                if !run.step(rank, at, k) {
                    break;
                }
                run.at[rank] += 1;
                left -= 1;
            }
            idle = if left == before { idle + 1 } else { 0 };
            if left == 0 {
                return true;
            }
            if idle > world {
                return false;
            }
            ready.push_back(rank);
        }
        true
    }
}

/// Folds and windows of one rank as its executor takes them.
fn clock_order(stages: &[u32], windows: u32, deepest: u32) -> Vec<(usize, u32)> {
    let mut sorted: Vec<usize> = (0..stages.len()).collect();
    sorted.sort_by_key(|at| stages[*at]);
    let active = |clock: u32| {
        sorted.iter().filter_map(move |at| {
            clock.checked_sub(stages[*at]).filter(|k| *k < windows).map(|k| (*at, k))
        })
    };
    (0..windows + deepest).flat_map(active).collect()
}

/// The slots of one rank: how many publications it has made, and which are not yet read by all.
#[derive(Clone, Default)]
struct SlotRing {
    made: u64,
    /// By position of a publication: the readers, one bit each, that have not consumed it.
    unread: HashMap<u64, u64>,
}

struct TrialRun<'a> {
    trial: &'a Trial<'a>,
    /// By rank and fold.
    flushes: Vec<Vec<Vec<(usize, usize)>>>,
    at: Vec<usize>,
    /// The board position of (rank, fold, window), once done.
    done: HashMap<(usize, usize, u32), Option<u64>>,
    boards: Vec<SlotRing>,
    /// Posts that were not taken, by (from, to): (fold, window).
    posted: HashMap<(usize, usize), VecDeque<(usize, u32)>>,
}

impl<'a> TrialRun<'a> {
    fn new(trial: &'a Trial<'a>) -> Self {
        let of_rank = |(rank, folds): (usize, &Vec<FusedFold>)| {
            let by_stream = |to: usize| !trial.boards.together(to, rank);
            (0..folds.len()).map(|at| flushes(folds, at, trial.placement, by_stream)).collect()
        };
        Self {
            trial,
            flushes: trial.all.iter().enumerate().map(of_rank).collect(),
            at: vec![0; trial.all.len()],
            done: HashMap::new(),
            boards: vec![SlotRing::default(); trial.all.len()],
            posted: HashMap::new(),
        }
    }

    fn shares_board(&self, a: usize, b: usize) -> bool {
        self.trial.boards.together(a, b)
    }

    /// Runs window `k` of fold `at`; false if it must wait.
    fn step(&mut self, rank: usize, at: usize, k: u32) -> bool {
        let trial = self.trial;
        let fold = &trial.all[rank][at];
        let senders: Vec<_> = trial.matching.senders(trial.all, rank, at).collect();
        let here = senders.iter().all(|(peer, sent)| self.done.contains_key(&(*peer, *sent, k)));
        let audience = fold.to.iter().filter(|to| self.shares_board(rank, **to)).count() as u64;
        let flushed = self.flushes[rank][at].iter().all(|(to, post)| {
            self.posted.get(&(rank, *to)).is_none_or(|link| !link.contains(&(*post, k)))
        });
        let ring = &self.boards[rank];
        let room = audience == 0
            || ring.made < trial.depth
            || !ring.unread.contains_key(&(ring.made - trial.depth));
        if !(here && flushed && room) {
            return false;
        }
        for (peer, sent) in senders {
            self.consume(rank, peer, sent, k);
        }
        let position = (audience > 0).then(|| self.publish(rank, audience));
        for to in fold.to.iter().filter(|to| !trial.boards.together(**to, rank)) {
            self.posted.entry((rank, *to)).or_default().push_back((at, k));
        }
        self.done.insert((rank, at, k), position);
        true
    }

    fn publish(&mut self, rank: usize, audience: u64) -> u64 {
        let ring = &mut self.boards[rank];
        let position = ring.made;
        ring.unread.insert(position, audience);
        ring.made += 1;
        position
    }

    fn consume(&mut self, rank: usize, peer: usize, sent: usize, k: u32) {
        if !self.shares_board(rank, peer) {
            if let Some(link) = self.posted.get_mut(&(peer, rank)) {
                link.retain(|post| *post != (sent, k));
            }
            return;
        }
        let position = self.done[&(peer, sent, k)].expect("a board's reader is in the audience");
        let unread = &mut self.boards[peer].unread;
        let left = unread.get_mut(&position).expect("read once by each");
        *left -= 1;
        if *left == 0 {
            unread.remove(&position);
        }
    }
}

/// The posts that must have left before fold `at` may write, because streams may still send from
/// where it writes: of each stream the last such post, as (peer, fold).
pub(super) fn flushes(
    folds: &[FusedFold],
    at: usize,
    placement: Placement,
    by_stream: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let Some(into) = folds[at].into else { return Vec::new() };
    let mut last = BTreeMap::new();
    for (earlier, fold) in folds[..at].iter().enumerate() {
        if fold.sent().is_some_and(|span| span.overlaps(into, placement)) {
            last.extend(fold.to.iter().filter(|to| by_stream(**to)).map(|to| (*to, earlier)));
        }
    }
    last.into_iter().collect()
}
