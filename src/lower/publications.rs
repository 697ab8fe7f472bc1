//! Publications on a board and messages on streams, numbered; and the consequences that a
//! publication proves.

use super::folds::FusedFolds;
use super::peers::{PeerLink, Peers};
use super::program::Flush;
use super::strategy::Strategy;

/// The publications of the ranks of a board in one window.
pub(super) struct Publications {
    /// By local rank.
    ranks: Vec<RankPublications>,
    /// By local rank, then by fold, less its first: how many publications of the rank that is lowered have
    /// certainly been consumed once the fold has run.
    implied: Vec<Vec<u32>>,
    all_readers_answer: bool,
}

struct RankPublications {
    /// Its first fold.
    first: usize,
    /// By fold, less the first: how many folds before it publish.
    nth: Vec<u32>,
    /// The stages of the folds that publish, ascending.
    stages: Vec<u32>,
}

impl Publications {
    /// The publications on the board of `me`.
    pub(super) fn new(strategy: &Strategy, peers: &Peers, me: usize) -> Self {
        let locals = peers.locals.iter();
        let ranks: Vec<RankPublications> =
            locals.clone().map(|rank| RankPublications::new(strategy, peers, *rank)).collect();
        let mine = &ranks[peers.local(me).expect("a rank is on its own board")];
        let nth = |fold: usize| mine.nth[fold - mine.first];
        let implied = locals.map(|rank| implied(strategy, *rank, me, nth)).collect();
        Self { implied, ranks, all_readers_answer: all_readers_answer(&strategy.folds, peers) }
    }

    /// The index of `fold` among the publishing folds of local rank `local`.
    pub(super) fn nth(&self, local: usize, fold: usize) -> u32 {
        self.ranks[local].nth[fold - self.ranks[local].first]
    }

    /// How many publications of the rank that is lowered `local` has certainly consumed once its
    /// fold `fold` is published.
    pub(super) fn implied(&self, local: usize, fold: usize) -> u32 {
        self.implied[local][fold - self.ranks[local].first]
    }

    /// The stages of the publishing folds of local rank `local`, ascending.
    pub(super) fn stages(&self, local: usize) -> &[u32] {
        &self.ranks[local].stages
    }

    /// True if every reader of a rank also publishes to it.
    pub(super) fn all_readers_answer(&self) -> bool {
        self.all_readers_answer
    }
}

impl RankPublications {
    fn new(strategy: &Strategy, peers: &Peers, rank: usize) -> Self {
        let folds = &strategy.folds;
        let own = folds.of(rank);
        let mut nth = vec![0; own.len()];
        let mut stages = Vec::new();
        for fold in &strategy.order[own.clone()] {
            let fold = *fold as usize;
            nth[fold - own.start] = stages.len() as u32;
            if folds.to(fold).iter().any(|to| peers.local(*to as usize).is_some()) {
                stages.push(strategy.stages[fold]);
            }
        }
        Self { first: own.start, nth, stages }
    }
}

/// By fold of `rank`: how many publications of `me` it and the folds before it have read. `nth`
/// numbers them.
fn implied(strategy: &Strategy, rank: usize, me: usize, nth: impl Fn(usize) -> u32) -> Vec<u32> {
    let folds = &strategy.folds;
    let own = folds.of(rank);
    let mut implied = vec![0; own.len()];
    let mut most = 0;
    for fold in &strategy.order[own.clone()] {
        let fold = *fold as usize;
        for place in folds.source_places(fold) {
            if folds.all_sources()[place].sender() == Some(me) {
                most = most.max(1 + nth(strategy.matching.sent(place)));
            }
        }
        implied[fold - own.start] = most;
    }
    implied
}

fn all_readers_answer(folds: &FusedFolds, peers: &Peers) -> bool {
    let ranks = peers.locals.len();
    // By writer and reader.
    let mut reads = vec![false; ranks * ranks];
    for (writer, rank) in peers.locals.iter().enumerate() {
        for fold in folds.of(*rank) {
            let readers = folds.to(fold).iter().filter_map(|to| peers.local(*to as usize));
            readers.for_each(|reader| reads[writer * ranks + reader] = true);
        }
    }
    let alike = |a: usize, b: usize| reads[a * ranks + b] == reads[b * ranks + a];
    (0..ranks).all(|a| (0..a).all(|b| alike(a, b)))
}

/// The posts of a rank: to streams, and to ranks of its board.
pub(super) struct Posts {
    /// The first of the rank's places among all receivers.
    first: usize,
    /// By place, less the first.
    posts: Vec<Flush>,
    /// By stream: the stages of the posts, ascending.
    stages: Vec<Vec<u32>>,
}

impl Posts {
    pub(super) fn new(
        strategy: &Strategy,
        peers: &Peers,
        publications: &Publications,
        me: usize,
    ) -> Self {
        let folds = &strategy.folds;
        let own = folds.of(me);
        let places = match own.is_empty() {
            true => 0..0,
            false => folds.to_places(own.start).start..folds.to_places(own.end - 1).end,
        };
        let mut posts = vec![Flush { peer: 0, nth: 0, stage: 0 }; places.len()];
        let mut stages = vec![Vec::new(); peers.remotes.len()];
        let own_local = peers.local(me).expect("a rank is on its own board");
        for fold in &strategy.order[own] {
            let fold = *fold as usize;
            let stage = strategy.stages[fold];
            for place in folds.to_places(fold) {
                let (peer, nth) = match peers.find(folds.all_to()[place] as usize) {
                    PeerLink::Local(local) => (local, publications.nth(own_local, fold)),
                    PeerLink::Stream(stream) => {
                        stages[stream].push(stage);
                        (stream, stages[stream].len() as u32 - 1)
                    }
                };
                posts[place - places.start] = Flush { peer: peer as u32, nth, stage };
            }
        }
        Self { first: places.start, posts, stages }
    }

    /// The wait for the post at `place` among all receivers.
    pub(super) fn flush(&self, place: usize) -> Flush {
        self.posts[place - self.first]
    }

    /// The stages of the posts to `stream`, ascending.
    pub(super) fn stages(&self, stream: usize) -> &[u32] {
        &self.stages[stream]
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithms::Algorithm;
    use crate::lower::{LoweringInput, SourceLocation, lower};
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::schedule::{Layout, Placement};

    /// Each rank publishes a part of its input, and its part of the result once it has read the
    /// input of its peer. So only the second publication proves that something was read.
    #[test]
    fn a_publication_proves_what_was_read_before_it_and_nothing_more() {
        let collective = Collective::AllReduce;
        let schedules = Algorithm::TwoShot.schedules(collective, 2).unwrap();
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &Layout::even(100, schedules[0].chunks),
            element: 4,
            boards: &Boards::new(&[0; 2]),
            window: 1 << 20,
            fingerprint: 1,
        };
        for me in 0..2 {
            let program = lower(&input, me, Placement::Apart).unwrap();
            let board = program.sources.iter().filter(|it| it.from == SourceLocation::Board);
            let implied = board.map(|source| (source.publication, source.implied));
            assert_eq!(implied.collect::<Vec<_>>(), [(0, 0), (1, 1)]);
        }
    }
}
