//! The posts that must have been taken before a fold may write: streams may still send from its
//! destination, or other ranks may still read there.

use super::folds::{FusedFolds, SpanIndex};
use crate::schedule::hosts::Boards;

/// Finds the posts that folds wait for, rank by rank.
pub(super) struct PostTracker<'a> {
    folds: &'a FusedFolds,
    boards: &'a Boards,
    index: SpanIndex,
    /// By span of the rank: the last post from it that no fold waits for yet, as a place among all
    /// receivers.
    last: Vec<u32>,
    /// By place of a receiver: the post of the same span before it.
    before: Vec<u32>,
    /// The posts that the current fold waits for.
    found: Vec<usize>,
}

const NONE: u32 = u32::MAX;

impl<'a> PostTracker<'a> {
    /// `index` numbers spans by the placement of the call.
    pub(super) fn new(folds: &'a FusedFolds, boards: &'a Boards, index: SpanIndex) -> Self {
        Self {
            folds,
            boards,
            index,
            last: vec![NONE; index.len()],
            before: vec![NONE; folds.all_to().len()],
            found: Vec::new(),
        }
    }

    /// Calls `each` with every fold of `rank` that waits for posts, in order, and with those posts:
    /// of each stream the last one, as a place among all receivers, by receiver.
    pub(super) fn of_rank(&mut self, rank: usize, mut each: impl FnMut(usize, &[usize])) {
        self.last.fill(NONE);
        for fold in self.folds.of(rank) {
            if let Some(into) = self.folds.changed(fold, self.index.changing()) {
                self.collect(self.index.of(into));
                if !self.found.is_empty() {
                    each(fold, &self.found);
                }
            }
            let Some(sent) = self.folds.sent(fold) else { continue };
            for place in self.folds.to_places(fold) {
                if self.folds.is_taken_from_buffer(place, rank, self.boards) {
                    let last = &mut self.last[self.index.of(sent)];
                    self.before[place] = std::mem::replace(last, place as u32);
                }
            }
        }
    }

    /// Collects the posts from `span`. Later folds need not wait for them again.
    fn collect(&mut self, span: usize) {
        self.found.clear();
        let mut post = std::mem::replace(&mut self.last[span], NONE);
        let to = self.folds.all_to();
        while post != NONE {
            let place = post as usize;
            if self.found.iter().all(|later| to[*later] != to[place]) {
                self.found.push(place);
            }
            post = self.before[place];
        }
        self.found.sort_by_key(|place| to[*place]);
    }
}
