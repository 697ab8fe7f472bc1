//! Emits one rank's program on registered memory.

use super::fold::{FoldId, ReachFold, ReachSource};
use crate::lower::LoweringInput;
use crate::lower::program::{
    Drain, Extent, Fold, FoldSource, Numbering, Program, Push, RegisteredAccess, RegisteredFold,
    SourceLocation,
};
use crate::schedule::collective::HeldChunks;
use crate::schedule::{Buffer, Placement, Span};
use maypole_transports::board::{SlotClass, lines};

/// All ranks' folds, and the rank whose program is emitted. Ranks are local ranks, because all of
/// them share one board.
pub(super) struct ReachEmitter<'a> {
    pub(super) request: &'a LoweringInput<'a>,
    pub(super) all: &'a [Vec<ReachFold>],
    pub(super) stages: &'a [Vec<u32>],
    pub(super) windows: u32,
    pub(super) me: usize,
}

/// The lists of a program while they grow.
#[derive(Default)]
struct ReachLists {
    folds: Vec<Fold>,
    sources: Vec<FoldSource>,
    of_folds: Vec<RegisteredFold>,
    pushes: Vec<Push>,
    drains: Vec<Drain>,
    scratch: usize,
}

impl ReachEmitter<'_> {
    pub(super) fn emit(&self) -> Program {
        let numberings: Box<[Numbering]> =
            (0..self.all.len()).map(|rank| self.numbering(rank)).collect();
        let totals = numberings.iter().map(Numbering::total).collect();
        let order = self.order(self.me);
        let mut lists = ReachLists::default();
        order.iter().for_each(|at| self.emit_fold(*at, &mut lists));
        let stages: Vec<u32> = order.iter().map(|at| self.stages[self.me][*at]).collect();
        let deepest = stages.last().copied().unwrap_or(0);
        let first_of =
            (0..=deepest + 1).map(|stage| stages.partition_point(|s| *s < stage) as u32).collect();
        Program {
            windows: self.windows,
            folds: lists.folds.into(),
            sources: lists.sources.into(),
            posts: Box::default(),
            flushes: Box::default(),
            first_of,
            numberings,
            totals,
            class: SlotClass::Tiny,
            mask: lines(self.all.len()) as u64 - 1,
            self_crediting: false,
            stages_input: false,
            past_caches: self.request.is_beyond_caches(self.me, Placement::Apart),
            scratch: lists.scratch,
            fingerprint: self.request.fingerprint,
            streams: Box::default(),
            longest_staged: 0,
            registered: Some(Box::new(RegisteredAccess {
                of_folds: lists.of_folds.into(),
                pushes: lists.pushes.into(),
                drains: lists.drains.into(),
                exposes: self.exposes(),
                lent: (0..self.all.len()).map(|peer| self.lent_to(peer)).collect(),
                awaited_at_end: self.awaited_at_end().into(),
            })),
        }
    }

    fn emit_fold(&self, at: usize, lists: &mut ReachLists) {
        let fold = &self.all[self.me][at];
        let stage = self.stages[self.me][at];
        let first = lists.sources.len() as u32;
        lists.sources.extend(fold.sources.iter().map(|source| self.source(*source)));
        if let Some(span) = fold.into.filter(|span| span.buffer == Buffer::Scratch) {
            let end = self.request.layout.of(self.me, span).end * self.request.element;
            lists.scratch = lists.scratch.max(end);
        }
        let pushes = lists.pushes.len() as u32;
        lists.pushes.extend(
            fold.pushes
                .iter()
                .map(|(peer, span)| Push { peer: *peer as u32, extent: self.extent(*peer, *span) }),
        );
        let drains = lists.drains.len() as u32;
        lists.drains.extend(fold.drains.iter().map(|read| Drain {
            audience: audience(&self.all[self.me][*read]),
            nth: self.nth((self.me, *read)),
            stage: self.stages[self.me][*read],
        }));
        lists.of_folds.push(RegisteredFold {
            pushes: (pushes, lists.pushes.len() as u32),
            drains: (drains, lists.drains.len() as u32),
        });
        lists.folds.push(Fold {
            extent: self.extent(self.me, fold.shape),
            into: fold.into.filter(|_| !fold.is_pushed()).map(|span| span.buffer),
            posted: None,
            audience: audience(fold),
            stage,
            first,
            count: fold.sources.len() as u16,
            posts: (0, 0),
            flushes: (0, 0),
        });
    }

    fn source(&self, source: ReachSource) -> FoldSource {
        let place = |from, peer: usize, extent| FoldSource {
            from,
            peer: peer as u32,
            extent,
            publication: 0,
            stage: 0,
            implied: 0,
        };
        let announced = |from, id: FoldId, extent| FoldSource {
            publication: self.nth(id),
            stage: self.stages[id.0][id.1],
            implied: self.implied(id),
            ..place(from, id.0, extent)
        };
        match source {
            ReachSource::Own(span) => {
                place(SourceLocation::Own(span.buffer), 0, self.extent(self.me, span))
            }
            ReachSource::Lent(peer, span) => {
                place(SourceLocation::Lent(span.buffer), peer, self.extent(peer, span))
            }
            ReachSource::Pulled(id, span) => {
                announced(SourceLocation::Peer(span.buffer), id, self.extent(id.0, span))
            }
            ReachSource::Pushed(id) => announced(SourceLocation::Pushed, id, Extent::default()),
            ReachSource::Message(_) => unreachable!("every message has its access"),
        }
    }

    /// The folds of a rank by stage, as its executor takes them.
    fn order(&self, rank: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all[rank].len()).collect();
        order.sort_by_key(|at| self.stages[rank][*at]);
        order
    }

    fn numbering(&self, rank: usize) -> Numbering {
        let order = self.order(rank);
        let sending = order.iter().filter(|at| !self.all[rank][**at].to.is_empty());
        let stages: Vec<u32> = sending.map(|at| self.stages[rank][*at]).collect();
        Numbering::new(&stages, self.windows)
    }

    /// The index of a fold among those of its rank that send.
    fn nth(&self, (rank, at): FoldId) -> u32 {
        let when = |at: usize| (self.stages[rank][at], at);
        let folds = self.all[rank].iter().enumerate();
        let before = folds.filter(|(other, fold)| !fold.to.is_empty() && when(*other) < when(at));
        before.count() as u32
    }

    /// How many of this rank's messages of this call the rank of fold `id` has certainly consumed
    /// when that fold's message is seen. With several windows, counters tell that, and this is zero.
    fn implied(&self, (peer, at): FoldId) -> u32 {
        if self.windows > 1 {
            return 0;
        }
        let when = |at: usize| (self.stages[peer][at], at);
        let folds = self.all[peer].iter().enumerate();
        let done = folds.filter(|(other, _)| when(*other) <= when(at));
        let read = done.flat_map(|(_, fold)| fold.senders()).filter(|(rank, _)| *rank == self.me);
        read.map(|id| 1 + self.nth(id)).max().unwrap_or(0)
    }

    /// Whether other ranks touch this rank's input, and its output.
    fn exposes(&self) -> (bool, bool) {
        let folds = || self.all.iter().flatten();
        let is_pushed = |fold: &ReachFold| fold.pushes.iter().any(|(peer, _)| *peer == self.me);
        let is_read = |buffer: Buffer| {
            let is_mine = |source: &ReachSource| match source {
                ReachSource::Pulled((peer, _), span) | ReachSource::Lent(peer, span) => {
                    *peer == self.me && span.buffer == buffer
                }
                _ => false,
            };
            folds().any(|fold| fold.sources.iter().any(is_mine))
        };
        (is_read(Buffer::Input), is_read(Buffer::Output) || folds().any(is_pushed))
    }

    /// Bytes of this rank's input that `peer` reads without a message.
    fn lent_to(&self, peer: usize) -> u64 {
        let sources = self.all[peer].iter().flat_map(|fold| &fold.sources);
        let mine = sources.filter_map(|source| match source {
            ReachSource::Lent(owner, span) if *owner == self.me => Some(*span),
            _ => None,
        });
        mine.map(|span| self.extent(self.me, span).bytes(self.windows)).sum()
    }

    /// The ranks that touch this rank's memory, and no message of theirs proves that they have done
    /// so for the last time.
    fn awaited_at_end(&self) -> Vec<u32> {
        let awaited = |peer: &usize| {
            let folds = self.all[*peer].iter().enumerate();
            let when = |(at, _): (usize, &ReachFold)| (self.stages[*peer][at], at);
            let touched = folds.clone().filter(|(_, fold)| touches(fold, self.me)).map(when).max();
            let told = folds.filter(|(_, fold)| fold.to.contains(&self.me)).map(when).max();
            touched.is_some() && told < touched
        };
        let peers = (0..self.all.len()).filter(|peer| *peer != self.me);
        peers.filter(awaited).map(|peer| peer as u32).collect()
    }

    /// Where a span of a rank lies in its buffer.
    fn extent(&self, rank: usize, span: Span) -> Extent {
        let layout = self.request.layout;
        let collective = self.request.collective;
        let range = layout.of(rank, span);
        let held = match span.buffer {
            Buffer::Input => collective.input(rank),
            Buffer::Output => collective.output(rank),
            Buffer::Scratch => HeldChunks::All,
        };
        let base = match held {
            HeldChunks::One(chunk) => layout.range(chunk).start,
            HeldChunks::All | HeldChunks::Nothing => 0,
        };
        Extent::new(range.start - base, range.len(), self.windows, self.request.element)
    }
}

/// The ranks that a message of `fold` is for, one bit each.
fn audience(fold: &ReachFold) -> u64 {
    fold.to.iter().map(|to| 1 << to).sum()
}

/// True if `fold` reads or writes the memory of rank `owner`, which is another rank.
fn touches(fold: &ReachFold, owner: usize) -> bool {
    let reads = fold.sources.iter().any(|source| match source {
        ReachSource::Pulled((peer, _), _) | ReachSource::Lent(peer, _) => *peer == owner,
        _ => false,
    });
    reads || fold.pushes.iter().any(|(peer, _)| *peer == owner)
}
