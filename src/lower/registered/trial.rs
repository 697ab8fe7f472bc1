//! The trial run: all ranks' folds on counters, to see that they complete and never race.

use super::fold::{FoldId, ReachFold};
use super::races::RaceDetector;
use crate::schedule::Placement;
use maypole_transports::board::lines;
use std::collections::HashMap;

/// All ranks' folds with everything that decides whether they complete.
pub(super) struct ReachTrial<'a> {
    pub(super) all: &'a [Vec<ReachFold>],
    pub(super) stages: &'a [Vec<u32>],
    pub(super) placement: Placement,
    pub(super) windows: u32,
}

/// The messages of one rank: how many it has sent, and by position how many readers are left.
#[derive(Clone, Default)]
struct LineRing {
    made: u64,
    unread: HashMap<u64, usize>,
}

struct ReachRun<'a> {
    trial: &'a ReachTrial<'a>,
    /// By fold and window: the position of its message, once done.
    done: HashMap<(FoldId, u32), u64>,
    rings: Vec<LineRing>,
    races: RaceDetector,
    raced: bool,
}

impl ReachTrial<'_> {
    /// True if no order of events can leave ranks waiting for one another, and none lets two ranks
    /// touch a byte at the same time. The trial has enough windows for every ring of lines to wrap
    /// while all stages are busy.
    pub(super) fn succeeds(&self) -> bool {
        let deepest = self.stages.iter().flatten().max().copied().unwrap_or(0);
        let windows = self.windows.min(deepest + lines(self.all.len()) as u32 + 2);
        let orders: Vec<Vec<(usize, u32)>> =
            self.stages.iter().map(|stages| by_clock(stages, windows, deepest)).collect();
        let world = self.all.len();
        let mut run = ReachRun::new(self);
        let mut at = vec![0; world];
        let mut left: usize = orders.iter().map(Vec::len).sum();
        while left > 0 {
            let before = left;
            for rank in 0..world {
                while let Some((fold, k)) = orders[rank].get(at[rank]).copied() {
                    if !run.step((rank, fold), k) {
                        break;
                    }
                    at[rank] += 1;
                    left -= 1;
                }
            }
            if left == before || run.raced {
                return false;
            }
        }
        true
    }
}

/// Folds and windows of one rank as its executor takes them.
fn by_clock(stages: &[u32], windows: u32, deepest: u32) -> Vec<(usize, u32)> {
    let mut sorted: Vec<usize> = (0..stages.len()).collect();
    sorted.sort_by_key(|at| stages[*at]);
    let active = |clock: u32| {
        sorted.iter().filter_map(move |at| {
            clock.checked_sub(stages[*at]).filter(|k| *k < windows).map(|k| (*at, k))
        })
    };
    (0..windows + deepest).flat_map(active).collect()
}

impl<'a> ReachRun<'a> {
    fn new(trial: &'a ReachTrial<'a>) -> Self {
        let world = trial.all.len();
        Self {
            trial,
            done: HashMap::new(),
            rings: vec![LineRing::default(); world],
            races: RaceDetector::new(world, trial.placement),
            raced: false,
        }
    }

    /// Runs window `k` of a fold; false if it must wait.
    fn step(&mut self, id: FoldId, k: u32) -> bool {
        let (rank, at) = id;
        let fold = &self.trial.all[rank][at];
        let ring = &self.rings[rank];
        let here = fold.senders().all(|from| self.done.contains_key(&(from, k)));
        let drained = fold.drains.iter().all(|read| {
            let position = self.done.get(&((rank, *read), k));
            position.is_some_and(|position| !ring.unread.contains_key(position))
        });
        let reused = ring.made.checked_sub(lines(self.rings.len()) as u64);
        let has_room = fold.to.is_empty() || reused.is_none_or(|it| !ring.unread.contains_key(&it));
        if !(here && drained && has_room) {
            return false;
        }
        self.raced |= !self.races.execute(id, k, fold);
        for from in fold.senders() {
            let position = self.done[&(from, k)];
            let unread = &mut self.rings[from.0].unread;
            let left = unread.get_mut(&position).expect("read once by each");
            *left -= 1;
            if *left == 0 {
                unread.remove(&position);
            }
        }
        let ring = &mut self.rings[rank];
        self.done.insert((id, k), ring.made);
        if !fold.to.is_empty() {
            ring.unread.insert(ring.made, fold.to.len());
            ring.made += 1;
        }
        true
    }
}
