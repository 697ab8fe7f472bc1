//! Emits one rank's program, fold by fold.

use super::LoweringInput;
use super::flush::PostTracker;
use super::folds::{Origin, SpanIndex};
use super::peers::{PeerLink, Peers};
use super::program::{
    Extent, Flush, Fold, FoldSource, Numbering, Program, Push, RegisteredAccess, SourceLocation,
    StreamLink,
};
use super::publications::{Posts, Publications};
use super::strategy::{Lowering, Strategy};
use crate::schedule::{Buffer, Placement, Span};

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
        lowering: &Lowering<'a>,
        strategy: &'a Strategy,
        me: usize,
        placement: Placement,
    ) -> Self {
        let Lowering { request, windows, .. } = *lowering;
        let peers = Peers::new(&strategy.folds, request.boards, me);
        let publications = Publications::new(strategy, &peers, me);
        let posts = Posts::new(strategy, &peers, &publications, me);
        Self { request, strategy, me, windows, placement, peers, publications, posts }
    }

    pub(super) fn emit(&self, stages_input: bool) -> Program {
        let numbering = |local| Numbering::new(self.publications.stages(local), self.windows);
        let numberings: Box<[_]> = (0..self.peers.locals.len()).map(numbering).collect();
        let totals: Box<[u64]> = numberings.iter().map(Numbering::total).collect();
        let most = totals.iter().copied().max().unwrap_or(0);
        let self_crediting = self.is_self_crediting(most);
        let depth = if self_crediting {
            (2 * most as usize).next_power_of_two().max(2)
        } else {
            self.strategy.slots.depth
        };
        let lists = self.lists();
        // Ranks that reach one another's memory may call with any placement.
        let is_any = self.strategy.folds.are_reaching();
        let placement = if is_any { Placement::Apart } else { self.placement };
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
            past_caches: self.request.is_beyond_caches(self.me, placement),
            scratch: lists.scratch,
            fingerprint: self.request.fingerprint,
            streams: self.links(),
            longest_staged: lists.longest_staged,
            registered: self.registered_access(),
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
            && !self.strategy.folds.are_reaching()
            && 2 * most <= self.strategy.slots.depth as u64
            && self.publications.all_readers_answer()
    }

    /// The folds of this rank in the executor's order.
    fn own(&self) -> &[u32] {
        &self.strategy.order[self.strategy.folds.of(self.me)]
    }

    fn stage(&self, fold: usize) -> u32 {
        self.strategy.stages[fold]
    }

    fn lists(&self) -> ProgramLists {
        let mut lists = ProgramLists::default();
        let flushes = self.flushes();
        let first = self.strategy.folds.of(self.me).start;
        for fold in self.own() {
            let fold = *fold as usize;
            self.emit_fold(fold, &flushes[fold - first], &mut lists);
        }
        lists
    }

    fn links(&self) -> Box<[StreamLink]> {
        let link = |(stream, peer): (usize, &usize)| StreamLink {
            peer: *peer as u32,
            posts: Numbering::new(self.posts.stages(stream), self.windows),
        };
        self.peers.remotes.iter().enumerate().map(link).collect()
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
        let extent = self.extent(self.me, folds.shape(fold));
        let scratch = folds.stored(fold).map_or(0, |span| self.scratch_up_to(span));
        program.scratch = program.scratch.max(scratch);
        let sources = &program.sources[first as usize..];
        let stored_as_it_comes = sources.len() == 1 && folds.stored(fold).is_some();
        let has_stream = sources.iter().any(|source| source.from == SourceLocation::Stream);
        if !stored_as_it_comes && has_stream {
            program.longest_staged = program.longest_staged.max(extent.window(0).1);
        }
        let count = sources.len() as u16;
        let (audience, streams) = self.receivers(fold);
        let has_posts = !streams.is_empty();
        let into = folds.stored(fold).filter(|_| !folds.is_stored_by_peer(fold));
        program.folds.push(Fold {
            extent,
            into: into.map(|span| span.buffer),
            posted: folds.sent(fold).filter(|_| has_posts).map(|span| span.buffer),
            audience,
            stage: self.stage(fold),
            first,
            count,
            posts: extend(&mut program.posts, streams),
            flushes: extend(&mut program.flushes, flushes.iter().copied()),
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
        let nowhere = Extent::default();
        match self.strategy.folds.all_sources()[place] {
            Origin::Local(span) => {
                FoldSource::at(SourceLocation::Own(span.buffer), 0, self.extent(self.me, span))
            }
            Origin::Lent(peer, span) => {
                let extent = self.extent(peer as usize, span);
                FoldSource::at(SourceLocation::Lent(span.buffer), self.local(peer), extent)
            }
            Origin::Remote(peer) => match self.peers.find(peer as usize) {
                PeerLink::Local(_) => self.announced(place, SourceLocation::Board, peer, nowhere),
                PeerLink::Stream(stream) => FoldSource {
                    stage: self.stage(self.strategy.matching.sent(place)),
                    ..FoldSource::at(SourceLocation::Stream, stream, nowhere)
                },
            },
            Origin::Pulled(peer, span) => {
                let extent = self.extent(peer as usize, span);
                self.announced(place, SourceLocation::Peer(span.buffer), peer, extent)
            }
            Origin::Pushed(peer) => self.announced(place, SourceLocation::Pushed, peer, nowhere),
        }
    }

    /// The source at `place`, which is ready once `peer` publishes.
    fn announced(
        &self,
        place: usize,
        from: SourceLocation,
        peer: u32,
        extent: Extent,
    ) -> FoldSource {
        let sent = self.strategy.matching.sent(place);
        let local = self.local(peer);
        FoldSource {
            publication: self.publications.nth(local, sent),
            stage: self.stage(sent),
            // With several windows, counters track consumption.
            implied: if self.windows > 1 { 0 } else { self.publications.implied(local, sent) },
            ..FoldSource::at(from, local, extent)
        }
    }

    /// The place of a rank on the board.
    fn local(&self, peer: u32) -> usize {
        self.peers.local(peer as usize).expect("the board has the ranks that publish on it")
    }

    /// By fold of this rank: its waits before it writes.
    fn flushes(&self) -> Vec<Vec<Flush>> {
        let folds = &self.strategy.folds;
        let own = folds.of(self.me);
        let mut flushes = vec![Vec::new(); own.len()];
        if self.peers.remotes.is_empty() && !folds.are_reaching() {
            return flushes;
        }
        let index = SpanIndex::new(self.request.schedules, self.placement);
        let mut tracker = PostTracker::new(folds, self.request.boards, index);
        tracker.of_rank(self.me, |fold, posts| {
            flushes[fold - own.start] = posts.iter().map(|post| self.posts.flush(*post)).collect();
        });
        flushes
    }

    /// Bytes of scratch up to the end of `span`.
    fn scratch_up_to(&self, span: Span) -> usize {
        if span.buffer == Buffer::Scratch {
            self.request.layout.of(self.me, span).end * self.request.element
        } else {
            0
        }
    }

    /// Where a span of `rank` lies in its buffer.
    fn extent(&self, rank: usize, span: Span) -> Extent {
        let layout = self.request.layout;
        let collective = self.request.collective;
        let range = layout.of(rank, span);
        let base = match span.buffer {
            Buffer::Input => layout.held(collective.input(rank)).start,
            Buffer::Output => layout.held(collective.output(rank)).start,
            Buffer::Scratch => 0,
        };
        Extent::new(range.start - base, range.len(), self.windows, self.request.element)
    }
}

/// Additional parts of programs whose folds reach other ranks' memory.
impl Emitter<'_> {
    fn registered_access(&self) -> Option<Box<RegisteredAccess>> {
        let folds = &self.strategy.folds;
        if !folds.are_reaching() {
            return None;
        }
        let push = |(peer, span): (usize, Span)| Push {
            peer: self.local(peer as u32) as u32,
            extent: self.extent(peer, span),
        };
        let mut pushes = Vec::new();
        let mut first_push = vec![0];
        for fold in self.own() {
            pushes.extend(folds.pushes(*fold as usize).map(push));
            first_push.push(pushes.len() as u32);
        }
        let locals = self.peers.locals.iter().copied();
        let others = locals.filter(|peer| *peer != self.me);
        let awaited = others.filter(|peer| self.is_awaited_at_end(*peer));
        Some(Box::new(RegisteredAccess {
            pushes: pushes.into(),
            first_push: first_push.into(),
            exposes: self.exposes(),
            lent: self.lent(),
            allows_in_place: self.placement == Placement::InPlace,
            awaited_at_end: awaited.map(|peer| self.local(peer as u32) as u32).collect(),
        }))
    }

    /// Whether other ranks touch this rank's input, and its output.
    fn exposes(&self) -> (bool, bool) {
        let folds = &self.strategy.folds;
        let touches = |buffer| {
            let mut touched = (0..folds.len()).flat_map(|fold| folds.touches(fold));
            touched.any(|(owner, span)| owner == self.me && span.buffer == buffer)
        };
        (touches(Buffer::Input), touches(Buffer::Output))
    }

    /// Bytes of this rank's input that other ranks read without a publication.
    fn lent(&self) -> u64 {
        let lent = |source: &Origin| match source {
            Origin::Lent(owner, span) if *owner as usize == self.me => {
                self.extent(self.me, *span).bytes(self.windows)
            }
            _ => 0,
        };
        self.strategy.folds.all_sources().iter().map(lent).sum()
    }

    /// True if `peer` touches this rank's memory, and no publication of `peer` proves its last
    /// access.
    fn is_awaited_at_end(&self, peer: usize) -> bool {
        let folds = &self.strategy.folds;
        let last = |matters: &dyn Fn(usize) -> bool| {
            self.strategy.order[folds.of(peer)].iter().rposition(|fold| matters(*fold as usize))
        };
        let touched = last(&|fold| folds.touches(fold).any(|(owner, _)| owner == self.me));
        let told = last(&|fold| folds.to(fold).contains(&(self.me as u32)));
        touched.is_some() && told < touched
    }
}

/// Appends `more` to `list`, and returns their range.
fn extend<T>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) -> (u32, u32) {
    let start = list.len() as u32;
    list.extend(more);
    (start, list.len() as u32)
}
