//! Folds on registered memory, before there are windows.

use crate::lower::program::MAX_SOURCES;
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};

/// A fold of a rank: (rank, index).
pub(super) type FoldId = (usize, usize);

/// Where a source of a fold is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReachSource {
    /// In a buffer of the rank.
    Own(Span),
    /// At this rank; how it is reached is not settled yet.
    Message(usize),
    /// In a span of a fold's rank, which that fold's message says is ready.
    Pulled(FoldId, Span),
    /// Where the fold stores: the other rank's fold has written it there before its message.
    Pushed(FoldId),
    /// In a span of this rank's input, which stays as it is during the call.
    Lent(usize, Span),
}

/// A fold that reaches registered memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ReachFold {
    /// The span that holds the result, if it is stored.
    pub(super) into: Option<Span>,
    /// The sources, in the order of combination.
    pub(super) sources: Vec<ReachSource>,
    /// The ranks that a message tells of the result.
    pub(super) to: Vec<usize>,
    /// Spans of other ranks that the result is written to.
    pub(super) pushes: Vec<(usize, Span)>,
    /// Earlier folds of this rank whose readers must be done before this one may store.
    pub(super) drains: Vec<usize>,
    /// A span of this rank that is as long as the result.
    pub(super) shape: Span,
}

impl ReachFold {
    fn new(into: Option<Span>, sources: Vec<ReachSource>, shape: Span) -> Self {
        let (to, pushes, drains) = (Vec::new(), Vec::new(), Vec::new());
        Self { into, sources, to, pushes, drains, shape }
    }

    fn storing(into: Span, sources: Vec<ReachSource>) -> Self {
        Self::new(Some(into), sources, into)
    }

    /// The span that holds what the fold sends.
    pub(super) fn sent(&self) -> Option<Span> {
        match (self.into, &self.sources[..]) {
            (Some(into), _) => Some(into),
            (None, [ReachSource::Own(span)]) => Some(*span),
            _ => None,
        }
    }

    /// The span in which other ranks find what the fold sends, if it is in registered memory.
    pub(super) fn home(&self) -> Option<Span> {
        self.sent().filter(|span| span.buffer != Buffer::Scratch)
    }

    pub(super) fn reads(&self, span: Span, placement: Placement) -> bool {
        self.own_sources().any(|own| own.overlaps(span, placement))
    }

    /// The spans of this rank that the fold reads.
    pub(super) fn own_sources(&self) -> impl Iterator<Item = Span> {
        self.sources.iter().filter_map(|source| match source {
            ReachSource::Own(span) => Some(*span),
            _ => None,
        })
    }

    /// The folds of other ranks whose messages the fold awaits.
    pub(super) fn senders(&self) -> impl Iterator<Item = FoldId> {
        self.sources.iter().filter_map(|source| match source {
            ReachSource::Pulled(from, _) | ReachSource::Pushed(from) => Some(*from),
            _ => None,
        })
    }

    /// True if another rank stores the result.
    pub(super) fn is_pushed(&self) -> bool {
        matches!(self.sources[..], [ReachSource::Pushed(_)])
    }

    /// True if the fold stores what is there already.
    pub(super) fn is_self_copy(&self, placement: Placement) -> bool {
        match (self.into, &self.sources[..]) {
            (Some(into), [ReachSource::Own(from)]) => from.overlaps(into, placement),
            _ => false,
        }
    }

    /// True if some rank that is told of the result reads it in place.
    pub(super) fn is_pulled(&self) -> bool {
        self.to.len() > self.pushes.len()
    }
}

/// Fuses the steps of one rank: sends of one span are one fold, and so are a first write and the
/// reductions after it. Every result is stored.
pub(super) fn fused(schedule: &Schedule) -> Vec<ReachFold> {
    let mut folds: Vec<ReachFold> = Vec::new();
    for step in &schedule.steps {
        match *step {
            Step::Send { from, to } => match folds.last_mut() {
                Some(last) if last.sent() == Some(from) && !last.to.contains(&to) => {
                    last.to.push(to);
                }
                _ => {
                    let mut fold = ReachFold::new(None, vec![ReachSource::Own(from)], from);
                    fold.to.push(to);
                    folds.push(fold);
                }
            },
            Step::Copy { from, into } => {
                folds.push(ReachFold::storing(into, vec![ReachSource::Own(from)]));
            }
            Step::Recv { into, from } => {
                folds.push(ReachFold::storing(into, vec![ReachSource::Message(from)]));
            }
            Step::Reduce { from, into } => reduce(&mut folds, into, ReachSource::Own(from)),
            Step::RecvReduce { into, from } => {
                reduce(&mut folds, into, ReachSource::Message(from));
            }
        }
    }
    folds
}

fn reduce(folds: &mut Vec<ReachFold>, into: Span, source: ReachSource) {
    match folds.last_mut() {
        // A fold reads all its sources before it stores, so none of them may be its result so far.
        Some(last)
            if last.into == Some(into)
                && last.to.is_empty()
                && last.sources.len() < MAX_SOURCES
                && source != ReachSource::Own(into) =>
        {
            last.sources.push(source);
        }
        _ => folds.push(ReachFold::storing(into, vec![ReachSource::Own(into), source])),
    }
}

/// Drops stores that neither a fold nor another rank reads: the span is overwritten first, or it is
/// scratch at the end.
pub(super) fn forget_dead_stores(folds: &mut [ReachFold]) {
    for at in 0..folds.len() {
        let Some(span) = folds[at].into else { continue };
        let apart = Placement::Apart;
        let next = folds[at + 1..].iter().find(|f| f.reads(span, apart) || f.into == Some(span));
        let dead = next.map_or(span.buffer == Buffer::Scratch, |f| !f.reads(span, apart));
        if dead && !folds[at].to.is_empty() && !folds[at].is_pulled() {
            folds[at].into = None;
        }
    }
}
