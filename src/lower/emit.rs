//! Emits one rank's program, fold by fold.

use super::LoweringInput;
use super::fuse::{FusedFold, Origin};
use super::order::flushes;
use super::program::{
    Extent, Flush, Fold, FoldSource, Numbering, Program, SourceLocation, StreamLink,
};
use super::strategy::Strategy;
use crate::schedule::collective::HeldChunks;
use crate::schedule::{Buffer, Layout, Placement, Span};
use std::collections::BTreeSet;

/// Emits one rank's program.
pub(super) struct Emitter<'a> {
    request: &'a LoweringInput<'a>,
    strategy: &'a Strategy,
    me: usize,
    windows: u32,
    placement: Placement,
    /// Ranks of this rank's board, ascending; their indices are the local ranks.
    locals: Vec<usize>,
    /// Ranks that this rank has streams with, ascending.
    remotes: Vec<usize>,
    /// Folds of each rank by stage, as its executor takes them.
    order: Vec<Vec<usize>>,
}

/// The lists of a program while they grow.
#[derive(Default)]
struct ProgramLists {
    folds: Vec<Fold>,
    sources: Vec<FoldSource>,
    posts: Vec<u32>,
    flushes: Vec<Flush>,
    scratch: usize,
    longest_staged: usize,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        request: &'a LoweringInput<'a>,
        strategy: &'a Strategy,
        me: usize,
        windows: u32,
        placement: Placement,
    ) -> Self {
        let sorted = |stages: &Vec<u32>| {
            let mut order: Vec<usize> = (0..stages.len()).collect();
            order.sort_by_key(|at| stages[*at]);
            order
        };
        let boards = request.boards;
        let peers =
            strategy.all[me].iter().flat_map(|fold| fold.to.iter().copied().chain(fold.remotes()));
        let remotes: BTreeSet<usize> = peers.filter(|peer| !boards.together(*peer, me)).collect();
        Self {
            request,
            strategy,
            me,
            windows,
            placement,
            locals: boards.locals(me),
            remotes: remotes.into_iter().collect(),
            order: strategy.stages.iter().map(sorted).collect(),
        }
    }

    pub(super) fn emit(&self, stages_input: bool) -> Program {
        let numberings: Box<[_]> = self.locals.iter().map(|rank| self.numbering(*rank)).collect();
        let totals: Box<[u64]> = numberings.iter().map(Numbering::total).collect();
        let most = totals.iter().copied().max().unwrap_or(0);
        let self_crediting = self.is_self_crediting(most);
        let depth = if self_crediting {
            (2 * most as usize).next_power_of_two().max(2)
        } else {
            self.strategy.depth
        };
        let mut lists = ProgramLists::default();
        for at in &self.order[self.me] {
            self.emit_fold(*at, &mut lists);
        }
        Program {
            windows: self.windows,
            folds: lists.folds.into(),
            sources: lists.sources.into(),
            posts: lists.posts.into(),
            flushes: lists.flushes.into(),
            first_of: self.first_of(),
            class: self.strategy.class,
            mask: depth as u64 - 1,
            self_crediting,
            stages_input,
            scratch: lists.scratch,
            fingerprint: self.request.fingerprint,
            streams: self.links(),
            longest_staged: lists.longest_staged,
            numberings,
            totals,
        }
    }

    fn links(&self) -> Box<[StreamLink]> {
        let link = |peer: &usize| {
            let stages = self.stages_of(self.me, |fold| fold.to.contains(peer));
            StreamLink { peer: *peer as u32, posts: Numbering::new(&stages, self.windows) }
        };
        self.remotes.iter().map(link).collect()
    }

    /// `first_of[s]`: the first fold of stage `s` or later.
    fn first_of(&self) -> Box<[u32]> {
        let stages: Vec<u32> =
            self.order[self.me].iter().map(|at| self.strategy.stages[self.me][*at]).collect();
        let deepest = stages.last().copied().unwrap_or(0);
        (0..=deepest + 1).map(|stage| stages.partition_point(|s| *s < stage) as u32).collect()
    }

    fn emit_fold(&self, at: usize, program: &mut ProgramLists) {
        let fold = &self.strategy.all[self.me][at];
        let first = program.sources.len() as u32;
        let mut senders = self.strategy.matching.senders(&self.strategy.all, self.me, at);
        for source in &fold.sources {
            program.sources.push(match source {
                Origin::Local(span) => self.local(*span),
                Origin::Remote(_) => {
                    let (peer, sent) = senders.next().expect("one sender for each remote source");
                    self.remote(peer, sent)
                }
            });
        }
        let extent = self.extent(fold.shape);
        program.scratch = fold
            .into
            .into_iter()
            .map(|span| self.scratch_up_to(span))
            .fold(program.scratch, usize::max);
        let stored_as_it_comes = fold.sources.len() == 1 && fold.into.is_some();
        if !stored_as_it_comes
            && program.sources[first as usize..].iter().any(|s| s.from == SourceLocation::Stream)
        {
            program.longest_staged = program.longest_staged.max(extent.window(0).1);
        }
        let posts = program.posts.len() as u32;
        let streams = self.remotes.iter().enumerate().filter(|(_, peer)| fold.to.contains(peer));
        program.posts.extend(streams.map(|(stream, _)| stream as u32));
        let waits = program.flushes.len() as u32;
        program.flushes.extend(self.flushes(at));
        program.folds.push(Fold {
            extent,
            into: fold.into.map(|span| span.buffer),
            posted: fold
                .sent()
                .filter(|_| program.posts.len() as u32 > posts)
                .map(|span| span.buffer),
            audience: self.audience(self.me, fold),
            stage: self.strategy.stages[self.me][at],
            first,
            count: fold.sources.len() as u16,
            posts: (posts, program.posts.len() as u32),
            flushes: (waits, program.flushes.len() as u32),
        });
    }

    fn local(&self, span: Span) -> FoldSource {
        FoldSource {
            from: SourceLocation::Own(span.buffer),
            peer: 0,
            extent: self.extent(span),
            publication: 0,
            stage: 0,
            implied: 0,
        }
    }

    fn remote(&self, peer: usize, sent: usize) -> FoldSource {
        let extent = Extent::default();
        let stage = self.strategy.stages[peer][sent];
        if let Some(stream) = self.remotes.iter().position(|rank| *rank == peer) {
            return FoldSource {
                from: SourceLocation::Stream,
                peer: stream as u32,
                extent,
                publication: 0,
                stage,
                implied: 0,
            };
        }
        let local =
            self.locals.iter().position(|rank| *rank == peer).expect("a peer is local or remote");
        FoldSource {
            from: SourceLocation::Board,
            peer: local as u32,
            extent,
            publication: self.nth_of(peer, sent, |fold| self.audience(peer, fold) != 0),
            stage,
            implied: self.implied(peer, sent),
        }
    }

    /// How many of this rank's publications of this call `peer` has certainly consumed once its
    /// fold `sent` is published. With several windows, counters tell that, and this is zero.
    fn implied(&self, peer: usize, sent: usize) -> u32 {
        if self.windows > 1 {
            return 0;
        }
        let done = self.order[peer].iter().take_while(|at| **at != sent).chain([&sent]);
        let read =
            done.flat_map(|at| self.strategy.matching.senders(&self.strategy.all, peer, *at));
        let ours = read.filter(|(rank, _)| *rank == self.me);
        ours.map(|(_, at)| 1 + self.nth_of(self.me, at, |fold| self.audience(self.me, fold) != 0))
            .max()
            .unwrap_or(0)
    }

    /// The index of fold `at` of `rank` among the folds for which `counts` is true.
    fn nth_of(&self, rank: usize, at: usize, counts: impl Fn(&FusedFold) -> bool) -> u32 {
        let before = self.order[rank].iter().take_while(|other| **other != at);
        before.filter(|other| counts(&self.strategy.all[rank][**other])).count() as u32
    }

    /// The stages of the folds of `rank` for which `counts` is true, ascending.
    fn stages_of(&self, rank: usize, counts: impl Fn(&FusedFold) -> bool) -> Vec<u32> {
        let counted = self.order[rank].iter().filter(|at| counts(&self.strategy.all[rank][**at]));
        counted.map(|at| self.strategy.stages[rank][*at]).collect()
    }

    fn numbering(&self, rank: usize) -> Numbering {
        Numbering::new(&self.stages_of(rank, |fold| self.audience(rank, fold) != 0), self.windows)
    }

    /// The local ranks that read the publication of `fold`, one bit each. `rank`, which publishes
    /// it, shares this rank's board.
    fn audience(&self, rank: usize, fold: &FusedFold) -> u64 {
        let boards = self.request.boards;
        let local = fold.to.iter().filter(|to| boards.together(**to, rank));
        let index = |to: &usize| self.locals.iter().position(|rank| rank == to);
        local.map(|to| 1 << index(to).expect("readers share the board")).sum()
    }

    fn flushes(&self, at: usize) -> Vec<Flush> {
        let boards = self.request.boards;
        let folds = &self.strategy.all[self.me];
        let posts = flushes(folds, at, self.placement, |to| !boards.together(to, self.me));
        let flush = |(peer, post): (usize, usize)| Flush {
            stream: self.remotes.iter().position(|rank| *rank == peer).expect("a stream") as u32,
            nth: self.nth_of(self.me, post, |fold| fold.to.contains(&peer)),
            stage: self.strategy.stages[self.me][post],
        };
        posts.into_iter().map(flush).collect()
    }

    /// True if no writer of this board ever needs a counter. Two conditions hold then: all readers
    /// of a writer publish to it in every call, so their publications prove that they have finished
    /// the call before; and the writer's slots last for two calls.
    fn is_self_crediting(&self, most: u64) -> bool {
        let answers = |writer: usize, reader: usize| {
            let folds = &self.strategy.all[reader];
            folds.iter().any(|fold| fold.to.contains(&writer))
        };
        let readers = |writer: usize| {
            let to = self.strategy.all[writer].iter().flat_map(|fold| fold.to.iter().copied());
            to.filter(|reader| self.locals.contains(reader))
        };
        self.windows == 1
            && most > 0
            && 2 * most <= self.strategy.depth as u64
            && self
                .locals
                .iter()
                .all(|writer| readers(*writer).all(|reader| answers(*writer, reader)))
    }

    /// Bytes of scratch that storing `span` needs.
    fn scratch_up_to(&self, span: Span) -> usize {
        if span.buffer == Buffer::Scratch {
            self.request.layout.of(self.me, span).end * self.request.element
        } else {
            0
        }
    }

    /// Where a span lies in its buffer.
    fn extent(&self, span: Span) -> Extent {
        let layout = self.request.layout;
        let collective = self.request.collective;
        let range = layout.of(self.me, span);
        let base = match span.buffer {
            Buffer::Input => held_from(collective.input(self.me), layout),
            Buffer::Output => held_from(collective.output(self.me), layout),
            Buffer::Scratch => 0,
        };
        Extent::new(range.start - base, range.len(), self.windows, self.request.element)
    }
}

/// Where in the whole a buffer that holds these chunks begins.
fn held_from(held: HeldChunks, layout: &Layout) -> usize {
    match held {
        HeldChunks::One(chunk) => layout.range(chunk).start,
        HeldChunks::All | HeldChunks::Nothing => 0,
    }
}
