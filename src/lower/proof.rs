//! Whether the programs of all ranks complete with a given number of slots.
//!
//! # By order
//!
//! With windows overlapped, a rank takes (clock, stage, list) in this order, where window `k` of a
//! fold runs at clock `k + stage`. If everything that a fold waits for comes strictly earlier in
//! (clock, stage), no fold can wait for itself, and all complete. A fold waits for three things:
//!
//! * A message. Its stage is at least one hop below: earlier by definition.
//! * A slot: the rank's publication of `depth` publications before must have been consumed. Let a
//!   rank have `m` publishing folds, in order of their stages; let fold `g` be the one at place
//!   `g`, with stage `s`, and let its last reader come `d` stages later. A fold at clock `c` and
//!   stage `t` may find publication (clock `c'`, `g`) unread if `c' + d > c`, or `c' + d = c` and
//!   `s + d >= t`. At most `m` publications are made in a clock, so the oldest such publication is
//!   at most `d m + last(s + d) - g` publications back, where `last(t)` is the place of the last
//!   fold of stage `t` or lower. With one window, the clock is the stage, and the first term is
//!   zero.
//! * A post that must have left before its span is overwritten. The fold that receives it must not
//!   have a higher stage. It may have the same one: a cycle of waits then lies within one stage of
//!   one window, and a trial of one window finds it.
//!
//! None of this depends on the number of windows, and the proof takes a few steps a fold.
//!
//! # By trial
//!
//! The programs are run on counters. Where windows run one after another, one window is enough: a
//! fold waits only for folds of its own window and of earlier ones, so a cycle of waits lies within
//! one window, and in every window the waits are those of the first one. Where windows overlap, the
//! trial has enough windows for every ring of slots to wrap while all stages are busy.
//!
//! Ranks that reach one another's memory could also touch a byte at the same time. The same trial
//! finds that ([`races`](super::races)).

use super::flush::PostTracker;
use super::folds::{FusedFolds, SpanIndex};
use super::order::Matching;
use super::races::RaceDetector;
use crate::schedule::hosts::Boards;
use std::cmp::Ordering;

/// All ranks' folds in an order, with everything that decides whether they complete.
#[derive(Clone, Copy)]
pub(super) struct OrderedFolds<'a> {
    pub(super) folds: &'a FusedFolds,
    pub(super) matching: &'a Matching,
    pub(super) stages: &'a [u32],
    /// The folds of each rank as its executor takes them.
    pub(super) order: &'a [u32],
    pub(super) boards: &'a Boards,
    /// The highest stage.
    pub(super) deepest: u32,
}

impl OrderedFolds<'_> {
    /// The stage of the last reader of `fold` on its board; `None` if the fold does not publish.
    fn last_reader(&self, rank: usize, fold: usize) -> Option<u32> {
        let near = self
            .folds
            .to_places(fold)
            .filter(|place| self.boards.together(self.folds.all_to()[*place] as usize, rank));
        near.map(|place| self.stages[self.matching.taken(place)]).max()
    }

    /// The greatest number of publications that a rank may have made before order alone proves that
    /// the first of them is consumed.
    pub(super) fn most_unread(&self, windows: u32) -> u64 {
        if !self.boards.is_shared() {
            return 0;
        }
        let mut publications: Vec<(u32, u32)> = Vec::new();
        let mut most = 0;
        for rank in self.folds.ranks() {
            publications.clear();
            let order = self.order[self.folds.of(rank)].iter().map(|fold| *fold as usize);
            let published =
                order.filter_map(|fold| Some((self.stages[fold], self.last_reader(rank, fold)?)));
            publications.extend(published);
            most = most.max(most_unread(&publications, windows));
        }
        most
    }

    /// True if the programs complete with `depth` slots a rank by the proof by order. `unread` is
    /// [`most_unread`](Self::most_unread).
    pub(super) fn completes_by_order(&self, unread: u64, depth: u64, index: SpanIndex) -> bool {
        // Without stages, all messages are of the same stage.
        self.deepest > 0
            && unread < depth
            && match self.latest_post(index) {
                Ordering::Less => true,
                Ordering::Equal => self.completes_by_trial(u64::MAX, 1, index),
                Ordering::Greater => false,
            }
    }

    /// Whether the posts that folds wait for are all received in lower stages than theirs; else
    /// whether none is received in a higher one.
    fn latest_post(&self, index: SpanIndex) -> Ordering {
        let mut latest = Ordering::Less;
        if self.boards.count() <= 1 {
            return latest;
        }
        let mut tracker = PostTracker::new(self.folds, self.boards, index);
        for rank in self.folds.ranks() {
            tracker.of_rank(rank, |fold, posts| {
                for post in posts {
                    let received = self.stages[self.matching.taken(*post)];
                    latest = latest.max(received.cmp(&self.stages[fold]));
                }
            });
        }
        latest
    }

    /// The number of windows that a trial has, if the call has `windows`.
    pub(super) fn windows_of_trial(&self, windows: u32, depth: u64) -> u32 {
        match self.deepest {
            0 => 1,
            deepest => windows.min(deepest.saturating_add(depth as u32).saturating_add(2)),
        }
    }

    /// The steps of a trial of `windows` windows.
    pub(super) fn steps_of_trial(&self, windows: u32) -> u64 {
        (u64::from(windows) + u64::from(self.deepest)) * self.folds.len() as u64
    }

    /// Runs `windows` windows of all programs on counters: true if no order of events can leave
    /// them waiting for one another, with `depth` slots a rank, and none lets two ranks touch a
    /// byte at the same time.
    pub(super) fn completes_by_trial(&self, depth: u64, windows: u32, index: SpanIndex) -> bool {
        let ranks = self.folds.ranks();
        let mut run = TrialState::new(self, depth, windows, index);
        let orders: Vec<Vec<FoldRun>> =
            ranks.clone().map(|rank| self.clock_order(rank, windows)).collect();
        let mut at = vec![0; ranks.len()];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (nth, rank) in ranks.clone().enumerate() {
                while orders[nth].get(at[nth]).is_some_and(|next| run.step(rank, *next)) {
                    at[nth] += 1;
                    moved = true;
                }
            }
        }
        orders.iter().zip(at).all(|(order, at)| at == order.len()) && !run.raced
    }

    /// Folds and windows of one rank in the executor's order.
    fn clock_order(&self, rank: usize, windows: u32) -> Vec<FoldRun> {
        let order = &self.order[self.folds.of(rank)];
        if windows == 1 {
            return order.iter().map(|fold| FoldRun { fold: *fold, window: 0 }).collect();
        }
        let active = |clock: u32| {
            order.iter().filter_map(move |fold| {
                let window = clock.checked_sub(self.stages[*fold as usize])?;
                (window < windows).then_some(FoldRun { fold: *fold, window })
            })
        };
        (0..windows + self.deepest).flat_map(active).collect()
    }
}

/// A window of a fold.
#[derive(Clone, Copy)]
struct FoldRun {
    fold: u32,
    window: u32,
}

/// `publications`: the stages of a rank's publishing folds and of their last readers, in order.
fn most_unread(publications: &[(u32, u32)], windows: u32) -> u64 {
    let folds = publications.len() as u64;
    let mut most = 0;
    for (place, (stage, reader)) in publications.iter().enumerate() {
        let last = publications.partition_point(|(other, _)| other <= reader) - 1;
        let delay = if windows == 1 { 0 } else { u64::from(reader - stage) * folds };
        most = most.max(delay + (last - place) as u64);
    }
    most.min((folds * u64::from(windows)).saturating_sub(1))
}

/// The events of a trial.
struct TrialState<'a> {
    order: &'a OrderedFolds<'a>,
    depth: u64,
    windows: usize,
    /// By fold and window: whether it has run.
    done: Vec<bool>,
    /// By rank, from the first one on: its publications, each as fold and window.
    published: Vec<Vec<usize>>,
    /// By fold and window: how many readers have not consumed its publication.
    unread: Vec<u32>,
    /// By fold: the posts that it waits for, as places among all receivers.
    flushes: Vec<Vec<usize>>,
    /// Whether ranks that reach one another's memory have raced.
    races: Option<RaceDetector<'a>>,
    raced: bool,
}

impl<'a> TrialState<'a> {
    fn new(order: &'a OrderedFolds<'a>, depth: u64, windows: u32, index: SpanIndex) -> Self {
        let folds = order.folds;
        let windows = windows as usize;
        let mut run = Self {
            order,
            depth,
            windows,
            done: vec![false; folds.len() * windows],
            published: vec![Vec::new(); folds.ranks().len()],
            unread: vec![0; folds.len() * windows],
            flushes: vec![Vec::new(); folds.len()],
            races: folds
                .are_reaching()
                .then(|| RaceDetector::new(folds, order.matching, index.placement())),
            raced: false,
        };
        if order.boards.count() > 1 || folds.are_reaching() {
            let mut tracker = PostTracker::new(folds, order.boards, index);
            for rank in folds.ranks() {
                tracker.of_rank(rank, |fold, posts| run.flushes[fold] = posts.to_vec());
            }
        }
        run
    }

    /// The number of `fold` in `window`.
    fn number(&self, fold: usize, window: u32) -> usize {
        fold * self.windows + window as usize
    }

    /// Runs a window of a fold; false if it must wait.
    fn step(&mut self, rank: usize, run: FoldRun) -> bool {
        let OrderedFolds { folds, matching, boards, .. } = *self.order;
        let FoldRun { fold, window } = run;
        let fold = fold as usize;
        let mut senders = matching.senders(folds, fold);
        let here = senders.all(|(_, sent)| self.done[self.number(sent, window)]);
        let flushes = &self.flushes[fold];
        let has_left = |post: &usize| self.done[self.number(matching.taken(*post), window)];
        if !here || !flushes.iter().all(has_left) {
            return false;
        }
        let near = |to: &&u32| boards.together(**to as usize, rank);
        let audience = folds.to(fold).iter().filter(near).count() as u32;
        let published = &self.published[rank - folds.ranks().start];
        let oldest = (published.len() as u64).checked_sub(self.depth);
        let is_unread = |oldest: u64| self.unread[published[oldest as usize]] > 0;
        if audience > 0 && oldest.is_some_and(is_unread) {
            return false;
        }
        if let Some(races) = &mut self.races {
            self.raced |= !races.execute(rank, fold, window, flushes);
        }
        self.consume(rank, fold, window);
        let number = self.number(fold, window);
        if audience > 0 {
            self.unread[number] = audience;
            self.published[rank - folds.ranks().start].push(number);
        }
        self.done[number] = true;
        true
    }

    fn consume(&mut self, rank: usize, fold: usize, window: u32) {
        let OrderedFolds { folds, matching, boards, .. } = *self.order;
        for (_, sent) in matching.senders(folds, fold).filter(|it| boards.together(it.0, rank)) {
            let sent = self.number(sent, window);
            self.unread[sent] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuse::fuse;
    use super::super::order::{by_stage, stages};
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::schedule::collective::Collective;
    use crate::schedule::{Placement, Schedule};
    use proptest::prelude::*;

    /// Whether the two proofs find that `schedules` complete: by order, and by trial.
    fn proofs(
        schedules: &[Schedule],
        boards: &Boards,
        windows: u32,
        depth: u64,
        placement: Placement,
    ) -> Option<(bool, bool)> {
        let folds = fuse(schedules, 0..schedules.len(), boards);
        let matching = Matching::new(&folds)?;
        let index = SpanIndex::new(schedules, Placement::InPlace);
        let stages = stages(&folds, &matching, boards.world(), index)?;
        let order = by_stage(&folds, &stages);
        let deepest = stages.iter().copied().max().unwrap_or(0);
        let ordered = OrderedFolds {
            folds: &folds,
            matching: &matching,
            stages: &stages,
            order: &order,
            boards,
            deepest,
        };
        let index = SpanIndex::new(schedules, placement);
        let by_order = ordered.completes_by_order(ordered.most_unread(windows), depth, index);
        let trial = ordered.windows_of_trial(windows, depth);
        Some((by_order, ordered.completes_by_trial(depth, trial, index)))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 400, failure_persistence: None, ..ProptestConfig::default()
        })]
        #[test]
        fn what_completes_by_order_completes_in_a_trial(
            world in 2..14usize,
            algorithm in prop::sample::select(Algorithm::named().collect::<Vec<_>>()),
            labels in prop::collection::vec(0..3usize, 14),
            one_board: bool,
            windows in prop::sample::select(vec![1, 2, 3, 7, 40]),
            depth in prop::sample::select(vec![1, 2, 4, 8, 16, 64]),
            in_place: bool,
        ) {
            let labels: Vec<usize> =
                labels[..world].iter().map(|label| if one_board { 0 } else { *label }).collect();
            let boards = Boards::new(&labels);
            let placement = if in_place { Placement::InPlace } else { Placement::Apart };
            for collective in Collective::all(world / 2) {
                let Some(schedules) = algorithm.schedules_on(collective, boards.numbers()) else {
                    continue;
                };
                let proofs = proofs(&schedules, &boards, windows, depth, placement);
                prop_assert!(
                    proofs != Some((true, false)),
                    "{algorithm} {collective:?} on {labels:?}, {windows} windows, {depth} slots"
                );
            }
        }
    }

    /// The property above would mean little if the proof by order succeeded seldom.
    #[test]
    fn usual_programs_complete_by_order() {
        let boards = Boards::new(&[0; 8]);
        for algorithm in [Algorithm::Ring, Algorithm::OneShot, Algorithm::RecursiveDoubling] {
            let schedules = algorithm.schedules(Collective::AllReduce, 8).expect("in the table");
            for windows in [1, 100] {
                let proofs = proofs(&schedules, &boards, windows, 64, Placement::InPlace);
                assert_eq!(proofs, Some((true, true)), "{algorithm}, {windows} windows");
            }
        }
    }
}
