//! Emits one rank's program, fold by fold.

use super::LoweringInput;
use super::flush::PostTracker;
use super::folds::{Origin, SpanIndex};
use super::peers::{PeerLink, Peers};
use super::program::{
    Extent, Flush, Fold, FoldSource, Numbering, Program, SourceLocation, StreamLink,
};
use super::publications::{Posts, Publications};
use super::strategy::Strategy;
use crate::schedule::collective::HeldChunks;
use crate::schedule::{Buffer, Layout, Placement, Span};

/// Emits one rank's program.
pub(super) struct Emitter<'a> {
    request: &'a LoweringInput<'a>,
    strategy: &'a Strategy,
    me: usize,
    windows: u32,
    placement: Placement,
    peers: Peers,
    publications: Publications,
    posts: Posts,
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
        let peers = Peers::new(&strategy.folds, request.boards, me);
        let publications = Publications::new(strategy, &peers, me);
        let posts = Posts::new(strategy, &peers, me);
        Self { request, strategy, me, windows, placement, peers, publications, posts }
    }

    pub(super) fn emit(&self, stages_input: bool) -> Program {
        let numbering = |local| Numbering::new(self.publications.stages(local), self.windows);
        let numberings: Box<[_]> = (0..self.peers.locals().len()).map(numbering).collect();
        let totals: Box<[u64]> = numberings.iter().map(Numbering::total).collect();
        let most = totals.iter().copied().max().unwrap_or(0);
        let self_crediting = self.is_self_crediting(most);
        let depth = if self_crediting {
            (2 * most as usize).next_power_of_two().max(2)
        } else {
            self.strategy.slots.depth
        };
        let lists = self.lists();
        Program {
            windows: self.windows,
            folds: lists.folds.into(),
            sources: lists.sources.into(),
            posts: lists.posts.into(),
            flushes: lists.flushes.into(),
            first_of: self.first_of(),
            class: self.strategy.slots.class,
            mask: depth as u64 - 1,
            self_crediting,
            stages_input,
            past_caches: self.request.is_beyond_caches(self.me, self.placement),
            scratch: lists.scratch,
            fingerprint: self.request.fingerprint,
            streams: self.links(),
            longest_staged: lists.longest_staged,
            registered: None,
            numberings,
            totals,
        }
    }

    /// True if no writer of this board ever needs a counter. Two conditions hold then: all readers
    /// of a writer publish to it in every call, so their publications prove that they have finished
    /// the call before; and the writer's slots last for two calls.
    fn is_self_crediting(&self, most: u64) -> bool {
        self.windows == 1
            && most > 0
            && 2 * most <= self.strategy.slots.depth as u64
            && self.publications.all_readers_answer()
    }

    /// The folds of this rank as its executor takes them.
    fn own(&self) -> &[u32] {
        &self.strategy.order[self.strategy.folds.of(self.me)]
    }

    fn stage(&self, fold: usize) -> u32 {
        self.strategy.stages[fold]
    }

    fn lists(&self) -> ProgramLists {
        let mut lists = ProgramLists::default();
        let (flushes, ranges) = self.flushes();
        let first = self.strategy.folds.of(self.me).start;
        for fold in self.own() {
            let fold = *fold as usize;
            let (start, end) = ranges[fold - first];
            self.emit_fold(fold, &flushes[start..end], &mut lists);
        }
        lists
    }

    fn links(&self) -> Box<[StreamLink]> {
        let link = |(stream, peer): (usize, &usize)| StreamLink {
            peer: *peer as u32,
            posts: Numbering::new(self.posts.stages(stream), self.windows),
        };
        self.peers.remotes().iter().enumerate().map(link).collect()
    }

    /// `first_of[s]`: the first fold of stage `s` or later.
    fn first_of(&self) -> Box<[u32]> {
        let stages: Vec<u32> = self.own().iter().map(|fold| self.stage(*fold as usize)).collect();
        let deepest = stages.last().copied().unwrap_or(0);
        (0..=deepest + 1).map(|stage| stages.partition_point(|s| *s < stage) as u32).collect()
    }

    fn emit_fold(&self, fold: usize, flushes: &[Flush], program: &mut ProgramLists) {
        let folds = &self.strategy.folds;
        let first = program.sources.len() as u32;
        program.sources.extend(folds.source_places(fold).map(|place| self.source(place)));
        let extent = self.extent(folds.shape(fold));
        let scratch = folds.stored(fold).map_or(0, |span| self.scratch_up_to(span));
        program.scratch = program.scratch.max(scratch);
        let sources = &program.sources[first as usize..];
        let stored_as_it_comes = sources.len() == 1 && folds.stored(fold).is_some();
        let has_stream = sources.iter().any(|source| source.from == SourceLocation::Stream);
        if !stored_as_it_comes && has_stream {
            program.longest_staged = program.longest_staged.max(extent.window(0).1);
        }
        let count = sources.len() as u16;
        let posts = program.posts.len() as u32;
        let (audience, streams) = self.receivers(fold);
        program.posts.extend(streams);
        let waits = program.flushes.len() as u32;
        program.flushes.extend(flushes);
        let has_posts = program.posts.len() as u32 > posts;
        program.folds.push(Fold {
            extent,
            into: folds.stored(fold).map(|span| span.buffer),
            posted: folds.sent(fold).filter(|_| has_posts).map(|span| span.buffer),
            audience,
            stage: self.stage(fold),
            first,
            count,
            posts: (posts, program.posts.len() as u32),
            flushes: (waits, program.flushes.len() as u32),
        });
    }

    /// The local ranks that read the publication of `fold`, one bit each; and the streams that it
    /// goes to, ascending.
    fn receivers(&self, fold: usize) -> (u64, Vec<u32>) {
        let mut audience = 0;
        let mut streams = Vec::new();
        for to in self.strategy.folds.to(fold) {
            match self.peers.find(*to as usize) {
                PeerLink::Local(local) => audience |= 1 << local,
                PeerLink::Stream(stream) => streams.push(stream as u32),
            }
        }
        streams.sort_unstable();
        (audience, streams)
    }

    /// The source at `place` among those of all folds.
    fn source(&self, place: usize) -> FoldSource {
        match self.strategy.folds.all_sources()[place] {
            Origin::Local(span) => FoldSource {
                from: SourceLocation::Own(span.buffer),
                peer: 0,
                extent: self.extent(span),
                publication: 0,
                stage: 0,
                implied: 0,
            },
            Origin::Remote(peer) => self.remote(peer as usize, self.strategy.matching.sent(place)),
        }
    }

    /// What `peer` sends by its fold `sent`.
    fn remote(&self, peer: usize, sent: usize) -> FoldSource {
        let extent = Extent::default();
        let stage = self.stage(sent);
        match self.peers.find(peer) {
            PeerLink::Stream(stream) => FoldSource {
                from: SourceLocation::Stream,
                peer: stream as u32,
                extent,
                publication: 0,
                stage,
                implied: 0,
            },
            PeerLink::Local(local) => FoldSource {
                from: SourceLocation::Board,
                peer: local as u32,
                extent,
                publication: self.publications.nth(local, sent),
                stage,
                // With several windows, counters tell what was consumed.
                implied: if self.windows > 1 { 0 } else { self.publications.implied(local, sent) },
            },
        }
    }

    /// What the folds of this rank wait for before they write; and where that of each fold lies in
    /// the list.
    fn flushes(&self) -> (Vec<Flush>, Vec<(usize, usize)>) {
        let folds = &self.strategy.folds;
        let own = folds.of(self.me);
        let mut flushes = Vec::new();
        let mut ranges = vec![(0, 0); own.len()];
        if self.peers.remotes().is_empty() {
            return (flushes, ranges);
        }
        let index = SpanIndex::new(self.request.schedules, self.placement);
        let mut tracker = PostTracker::new(folds, self.request.boards, index);
        tracker.of_rank(self.me, |fold, posts| {
            let start = flushes.len();
            flushes.extend(posts.iter().map(|place| self.posts.flush(*place)));
            ranges[fold - own.start] = (start, flushes.len());
        });
        (flushes, ranges)
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
