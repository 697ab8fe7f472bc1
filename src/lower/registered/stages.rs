//! The number of hops before each fold, and the order in which folds run.

use super::fold::ReachFold;
use crate::schedule::{Placement, Span};
use std::collections::HashMap;

/// How many hops lie before each fold of each rank: the skew of the software pipeline. `None` if
/// windows that overlap in this way would overtake one another on some link; then windows must run
/// one after another.
pub(super) fn pipelined(all: &[Vec<ReachFold>]) -> Option<Vec<Vec<u32>>> {
    let mut ranks: Vec<ReachStages> = all.iter().map(|_| ReachStages::default()).collect();
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for rank in 0..all.len() {
            while let Some(fold) = all[rank].get(ranks[rank].stages.len()) {
                let arrives = fold.senders().try_fold(0, |latest, (peer, sent)| {
                    ranks[peer].stages.get(sent).map(|stage: &u32| latest.max(stage + 1))
                });
                let Some(arrives) = arrives else { break };
                ranks[rank].push(fold, arrives);
                moved = true;
            }
        }
    }
    let stages: Vec<Vec<u32>> = ranks.into_iter().map(|rank| rank.stages).collect();
    let complete = stages.iter().zip(all).all(|(stages, folds)| stages.len() == folds.len());
    (complete && keeps_link_order(all, &stages)).then_some(stages)
}

/// The stages of one rank so far, and the stages that a later fold must not precede.
#[derive(Default)]
struct ReachStages {
    stages: Vec<u32>,
    written: HashMap<Span, u32>,
    read: HashMap<Span, u32>,
    sent: HashMap<usize, u32>,
    taken: HashMap<usize, u32>,
}

impl ReachStages {
    /// Conflicts are those of the in-place call, which has the most.
    fn push(&mut self, fold: &ReachFold, arrives: u32) {
        let place = |span: Span| span.in_place(Placement::InPlace);
        let spans: Vec<Span> = fold.own_sources().map(place).collect();
        let into = fold.into.map(place);
        let mut stage = arrives;
        let mut after = |earlier: Option<&u32>| stage = stage.max(earlier.copied().unwrap_or(0));
        spans.iter().chain(&into).for_each(|span| after(self.written.get(span)));
        into.iter().for_each(|span| after(self.read.get(span)));
        fold.to.iter().for_each(|peer| after(self.sent.get(peer)));
        fold.senders().for_each(|(peer, _)| after(self.taken.get(&peer)));
        for span in spans {
            let read = self.read.entry(span).or_default();
            *read = stage.max(*read);
        }
        into.iter().for_each(|span| *self.written.entry(*span).or_default() = stage);
        fold.to.iter().for_each(|peer| *self.sent.entry(*peer).or_default() = stage);
        fold.senders().for_each(|(peer, _)| *self.taken.entry(peer).or_default() = stage);
        self.stages.push(stage);
    }
}

/// True if all messages of a link have the same delay in stages.
fn keeps_link_order(all: &[Vec<ReachFold>], stages: &[Vec<u32>]) -> bool {
    let mut delays: HashMap<(usize, usize), u32> = HashMap::new();
    for (rank, folds) in all.iter().enumerate() {
        for (at, fold) in folds.iter().enumerate() {
            for (peer, sent) in fold.senders() {
                let delay = stages[rank][at] - stages[peer][sent];
                if *delays.entry((peer, rank)).or_insert(delay) != delay {
                    return false;
                }
            }
        }
    }
    true
}
