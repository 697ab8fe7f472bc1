//! The ranks that a rank exchanges messages with: those of its board, and those at the far ends of
//! its streams.

use super::folds::FusedFolds;
use crate::schedule::hosts::Boards;

#[derive(Clone, Copy)]
pub(super) enum PeerLink {
    /// By the board, at this place.
    Local(usize),
    /// By this stream of the program.
    Stream(usize),
}

/// All ranks that a rank exchanges messages with.
pub(super) struct Peers {
    /// Ranks of its board, ascending; their places are the local ranks.
    pub(super) locals: Vec<usize>,
    /// Ranks that it has streams with, ascending.
    pub(super) remotes: Vec<usize>,
    /// By rank.
    reached: Vec<Option<PeerLink>>,
}

impl Peers {
    pub(super) fn new(folds: &FusedFolds, boards: &Boards, me: usize) -> Self {
        let locals = boards.locals(me);
        let to = |fold| folds.to(fold).iter().map(|to| *to as usize);
        let peers = folds.of(me).flat_map(|fold| to(fold).chain(folds.remotes(fold)));
        let mut remotes: Vec<usize> = peers.filter(|peer| !boards.together(*peer, me)).collect();
        remotes.sort_unstable();
        remotes.dedup();
        let mut reached = vec![None; boards.world()];
        for (at, rank) in locals.iter().enumerate() {
            reached[*rank] = Some(PeerLink::Local(at));
        }
        for (at, rank) in remotes.iter().enumerate() {
            reached[*rank] = Some(PeerLink::Stream(at));
        }
        Self { locals, remotes, reached }
    }

    /// # Panics
    /// If the rank exchanges no messages with `rank`.
    pub(super) fn find(&self, rank: usize) -> PeerLink {
        self.reached[rank].expect("a peer is local or remote")
    }

    /// The place of `rank` on the board, if it has one.
    pub(super) fn local(&self, rank: usize) -> Option<usize> {
        match self.reached[rank] {
            Some(PeerLink::Local(local)) => Some(local),
            _ => None,
        }
    }
}
