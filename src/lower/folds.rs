//! The fused folds of all ranks, in a few long lists. A world of many ranks has hundreds of
//! thousands of folds. With lists for each fold, and maps for spans and links, lowering an
//! all-reduce by halving and doubling among 64 ranks took 43 ms; with long lists it takes 2.5 ms.

use crate::schedule::hosts::Boards;
use crate::schedule::{Placement, Schedule, Span};
use std::ops::Range;

/// A source of a fold, before windows exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// In a buffer of the rank.
    Local(Span),
    /// This rank sends it, through a slot or a stream.
    Remote(u32),
    /// In this span of a rank, ready once its message arrives.
    Pulled(u32, Span),
    /// Where the fold stores: this rank has written it there before its message.
    Pushed(u32),
    /// In this span of a rank's input, which stays as it is during the call.
    Lent(u32, Span),
}

impl Origin {
    /// The rank whose message brings or announces the source, if a message does.
    pub(super) fn sender(self) -> Option<usize> {
        match self {
            Self::Remote(peer) | Self::Pulled(peer, _) | Self::Pushed(peer) => Some(peer as usize),
            Self::Local(_) | Self::Lent(..) => None,
        }
    }

    /// The rank and the span that the source is read from, if it is another rank's.
    pub(super) fn of_peer(self) -> Option<(usize, Span)> {
        match self {
            Self::Pulled(peer, span) | Self::Lent(peer, span) => Some((peer as usize, span)),
            Self::Local(_) | Self::Remote(_) | Self::Pushed(_) => None,
        }
    }
}

/// A fold, before windows exist.
#[derive(Clone, Copy, Debug)]
struct FusedFold {
    /// The span that stores the result, if it is stored.
    into: Option<Span>,
    /// A span of this rank that is as long as the result.
    shape: Span,
    /// Its first source, and its first receiver.
    sources: u32,
    to: u32,
}

/// The folds of all ranks, or of one rank that represents all. A fold is named by its number: by
/// rank, then in the order of the rank's schedule.
#[derive(Debug)]
pub(super) struct FusedFolds {
    folds: Vec<FusedFold>,
    /// The ranks whose folds these are.
    ranks: Range<usize>,
    /// By rank: its first fold; and the number of all folds.
    starts: Vec<usize>,
    /// Sources of all folds, in the order of combination.
    sources: Vec<Origin>,
    /// The ranks that get the results of all folds.
    to: Vec<u32>,
    /// By place of a receiver: the span of the receiver that the sender writes to, if it does.
    /// `None` if results go through slots and streams.
    pushed: Option<Vec<Option<Span>>>,
}

impl FusedFolds {
    /// No folds yet, of `ranks`.
    pub(super) fn with_capacity(ranks: Range<usize>, folds: usize) -> Self {
        let mut starts = Vec::with_capacity(ranks.len() + 1);
        starts.push(0);
        Self {
            folds: Vec::with_capacity(folds),
            ranks,
            starts,
            sources: Vec::with_capacity(folds),
            to: Vec::with_capacity(folds),
            pushed: None,
        }
    }

    /// No folds yet, which will reach the registered memory of other ranks.
    pub(super) fn reaching(ranks: Range<usize>, folds: usize) -> Self {
        Self { pushed: Some(Vec::with_capacity(folds)), ..Self::with_capacity(ranks, folds) }
    }

    /// True if the folds reach the registered memory of other ranks.
    pub(super) fn are_reaching(&self) -> bool {
        self.pushed.is_some()
    }

    /// Adds a fold that stores the combination of `sources`.
    pub(super) fn store(&mut self, into: Span, sources: &[Origin]) {
        self.add(Some(into), into, sources.iter().copied());
    }

    /// Adds a fold with a result as long as `shape`.
    pub(super) fn add(
        &mut self,
        into: Option<Span>,
        shape: Span,
        sources: impl IntoIterator<Item = Origin>,
    ) {
        let first = self.sources.len() as u32;
        let to = self.to.len() as u32;
        self.folds.push(FusedFold { into, shape, sources: first, to });
        self.sources.extend(sources);
    }

    pub(super) fn join_last(&mut self, source: Origin) {
        self.sources.push(source);
    }

    pub(super) fn send_last_to(&mut self, to: usize) {
        self.to.push(to as u32);
    }

    /// Adds a receiver to the last fold, which writes its result to a span of the receiver or lets
    /// the receiver read it.
    pub(super) fn reach_last(&mut self, to: usize, pushed: Option<Span>) {
        self.send_last_to(to);
        self.pushed.as_mut().expect("folds that reach registered memory").push(pushed);
    }

    /// Ends the folds of this rank: the next fold is one of the next rank.
    pub(super) fn end_rank(&mut self) {
        self.starts.push(self.folds.len());
    }

    pub(super) fn drop_store(&mut self, fold: usize) {
        self.folds[fold].into = None;
    }

    pub(super) fn len(&self) -> usize {
        self.folds.len()
    }

    /// The ranks whose folds these are.
    pub(super) fn ranks(&self) -> Range<usize> {
        self.ranks.clone()
    }

    /// The folds of `rank`.
    ///
    /// # Panics
    /// If it is not among [`ranks`](Self::ranks).
    pub(super) fn of(&self, rank: usize) -> Range<usize> {
        let at = rank - self.ranks.start;
        self.starts[at]..self.starts[at + 1]
    }

    pub(super) fn stored(&self, fold: usize) -> Option<Span> {
        self.folds[fold].into
    }

    /// The span that the fold overwrites. `None` if it stores nothing itself or the bytes are in
    /// place already.
    pub(super) fn changed(&self, fold: usize, placement: Placement) -> Option<Span> {
        let into = self.stored(fold)?;
        match self.sources(fold) {
            [Origin::Local(from)] if from.overlaps(into, placement) => None,
            _ if self.is_stored_by_peer(fold) => None,
            _ => Some(into),
        }
    }

    /// True if another rank writes the result to where the fold stores it.
    pub(super) fn is_stored_by_peer(&self, fold: usize) -> bool {
        matches!(self.sources(fold), [Origin::Pushed(_)])
    }

    pub(super) fn shape(&self, fold: usize) -> Span {
        self.folds[fold].shape
    }

    /// The places of the fold's sources among those of all folds.
    pub(super) fn source_places(&self, fold: usize) -> Range<usize> {
        let end = self.folds.get(fold + 1).map_or(self.sources.len(), |next| next.sources as usize);
        self.folds[fold].sources as usize..end
    }

    /// The places of the fold's receivers among those of all folds.
    pub(super) fn to_places(&self, fold: usize) -> Range<usize> {
        let end = self.folds.get(fold + 1).map_or(self.to.len(), |next| next.to as usize);
        self.folds[fold].to as usize..end
    }

    pub(super) fn sources(&self, fold: usize) -> &[Origin] {
        &self.sources[self.source_places(fold)]
    }

    pub(super) fn to(&self, fold: usize) -> &[u32] {
        &self.to[self.to_places(fold)]
    }

    /// Sources of all folds, by place.
    pub(super) fn all_sources(&self) -> &[Origin] {
        &self.sources
    }

    /// Receivers of all folds, by place.
    pub(super) fn all_to(&self) -> &[u32] {
        &self.to
    }

    /// The span of the receiver at `place` that the sender writes to, if it does.
    pub(super) fn pushed(&self, place: usize) -> Option<Span> {
        *self.pushed.as_ref()?.get(place)?
    }

    /// The places of other ranks that the fold writes to: rank and span.
    pub(super) fn pushes(&self, fold: usize) -> impl Iterator<Item = (usize, Span)> {
        let pushed = |place| Some((self.to[place] as usize, self.pushed(place)?));
        self.to_places(fold).filter_map(pushed)
    }

    /// The places of other ranks that the fold reads or writes: rank and span.
    pub(super) fn touches(&self, fold: usize) -> impl Iterator<Item = (usize, Span)> {
        let read = self.sources(fold).iter().filter_map(|source| source.of_peer());
        read.chain(self.pushes(fold))
    }

    /// True if the receiver at `place`, which is in `boards`, takes the result from where `rank`
    /// stores it, and not from a slot.
    pub(super) fn is_taken_from_buffer(&self, place: usize, rank: usize, boards: &Boards) -> bool {
        match self.are_reaching() {
            true => self.pushed(place).is_none(),
            false => !boards.together(self.to[place] as usize, rank),
        }
    }

    /// The span that the fold sends: its result, or the one local source that it passes on.
    pub(super) fn sent(&self, fold: usize) -> Option<Span> {
        match (self.stored(fold), self.sources(fold)) {
            (Some(into), _) => Some(into),
            (None, [Origin::Local(span)]) => Some(*span),
            _ => None,
        }
    }

    /// True if a rank sends two messages to one peer with no fold between them that could wait.
    pub(super) fn has_messages_in_a_row(&self) -> bool {
        let passes_on = |fold: usize| self.stored(fold).is_none() && self.sent(fold).is_some();
        let in_a_row = |fold: usize| {
            passes_on(fold) && self.to(fold).iter().any(|to| self.to(fold - 1).contains(to))
        };
        self.ranks().any(|rank| self.of(rank).skip(1).any(in_a_row))
    }

    /// The spans of the rank's own that the fold reads.
    pub(super) fn reads(&self, fold: usize) -> impl Iterator<Item = Span> + Clone {
        self.sources(fold).iter().filter_map(|source| match source {
            Origin::Local(span) => Some(*span),
            _ => None,
        })
    }

    /// The ranks that the fold receives from.
    pub(super) fn remotes(&self, fold: usize) -> impl Iterator<Item = usize> {
        self.sources(fold).iter().filter_map(|source| source.sender())
    }
}

/// Numbers the spans that schedules name. Spans that overlap have one number.
#[derive(Clone, Copy)]
pub(super) struct SpanIndex {
    /// Greater than every chunk that a step names.
    stride: usize,
    placement: Placement,
    /// True if some ranks call in place and others do not.
    is_mixed: bool,
}

impl SpanIndex {
    pub(super) fn new(schedules: &[Schedule], placement: Placement) -> Self {
        let chunks = schedules.iter().map(|schedule| schedule.chunks.max(schedule.scratch));
        Self { stride: chunks.max().unwrap_or(0), placement, is_mixed: false }
    }

    /// For calls with any mix of placements: folds have the waits of all of them.
    pub(super) fn mixed(schedules: &[Schedule]) -> Self {
        Self { is_mixed: true, ..Self::new(schedules, Placement::InPlace) }
    }

    /// The placement in which folds change the most spans.
    pub(super) fn changing(self) -> Placement {
        // In place, a copy from an input chunk to its output chunk changes nothing.
        if self.is_mixed { Placement::Apart } else { self.placement }
    }

    pub(super) fn len(self) -> usize {
        3 * self.stride
    }

    pub(super) fn placement(self) -> Placement {
        self.placement
    }

    pub(super) fn of(self, span: Span) -> usize {
        span.in_place(self.placement).buffer as usize * self.stride + span.chunk
    }
}
