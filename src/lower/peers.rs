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
        let mut is_peer = vec![false; boards.world()];
        for fold in folds.of(me) {
            folds.to(fold).iter().for_each(|to| is_peer[*to as usize] = true);
            folds.remotes(fold).for_each(|from| is_peer[from] = true);
        }
        let remotes: Vec<usize> = (0..is_peer.len())
            .filter(|rank| is_peer[*rank] && !boards.together(*rank, me))
            .collect();
        let mut reached = vec![None; is_peer.len()];
        locals.iter().enumerate().for_each(|(at, rank)| reached[*rank] = Some(PeerLink::Local(at)));
        remotes
            .iter()
            .enumerate()
            .for_each(|(at, rank)| reached[*rank] = Some(PeerLink::Stream(at)));
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
