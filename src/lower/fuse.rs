//! Fuses the steps of one window into folds.
//!
//! Sends of one span to several peers become one publication. A first write and the reductions
//! after it become one fold. A fold whose result is sent becomes a fold that publishes. A result
//! that is only sent on is not stored.

use super::program::MAX_SOURCES;
use crate::schedule::walk::{Meaning, Stuck, walk};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};

/// Where a source of a fold comes from, before there are windows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Local(Span),
    Remote(usize),
}

/// A fold, before there are windows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FusedFold {
    /// The span that stores the result, if it is stored.
    pub(super) into: Option<Span>,
    /// The sources, in the order of combination.
    pub(super) sources: Vec<Origin>,
    /// The ranks that get the result.
    pub(super) to: Vec<usize>,
    /// A span of this rank that is as long as the result.
    pub(super) shape: Span,
}

impl FusedFold {
    fn storing(into: Span, sources: Vec<Origin>) -> Self {
        Self { into: Some(into), sources, to: Vec::new(), shape: into }
    }

    fn sending(from: Span, to: usize) -> Self {
        Self { into: None, sources: vec![Origin::Local(from)], to: vec![to], shape: from }
    }

    /// The span that holds what the fold sends: its result, or the one local source that it passes
    /// on.
    pub(super) fn sent(&self) -> Option<Span> {
        match (self.into, &self.sources[..]) {
            (Some(into), _) => Some(into),
            (None, [Origin::Local(span)]) => Some(*span),
            _ => None,
        }
    }

    pub(super) fn reads(&self, span: Span, placement: Placement) -> bool {
        self.sources
            .iter()
            .any(|source| matches!(source, Origin::Local(s) if s.overlaps(span, placement)))
    }

    pub(super) fn remotes(&self) -> impl Iterator<Item = usize> {
        self.sources.iter().filter_map(|source| match source {
            Origin::Remote(peer) => Some(*peer),
            Origin::Local(_) => None,
        })
    }
}

/// Fuses the steps of one rank. `by_stream(peer)` is true of peers that are reached by a
/// stream: a stream sends from a buffer, so a result that it sends must be stored.
pub(super) fn fuse(schedule: &Schedule, by_stream: impl Fn(usize) -> bool) -> Vec<FusedFold> {
    let mut folds: Vec<FusedFold> = Vec::new();
    for step in &schedule.steps {
        match *step {
            Step::Send { from, to } => match folds.last_mut() {
                // A publication is read once by each of its readers.
                Some(last) if last.sent() == Some(from) && !last.to.contains(&to) => {
                    last.to.push(to)
                }
                _ => folds.push(FusedFold::sending(from, to)),
            },
            Step::Copy { from, into } => {
                folds.push(FusedFold::storing(into, vec![Origin::Local(from)]))
            }
            Step::Recv { into, from } => {
                folds.push(FusedFold::storing(into, vec![Origin::Remote(from)]))
            }
            Step::Reduce { from, into } => reduce(&mut folds, into, Origin::Local(from)),
            Step::RecvReduce { into, from } => reduce(&mut folds, into, Origin::Remote(from)),
        }
    }
    forget_dead_stores(&mut folds, by_stream);
    folds
}

fn reduce(folds: &mut Vec<FusedFold>, into: Span, source: Origin) {
    match folds.last_mut() {
        // A fold reads all its sources before it writes, so none of them may be the result of
        // the fold so far; and a stream lends one message at a time.
        Some(last)
            if last.into == Some(into)
                && last.to.is_empty()
                && last.sources.len() < MAX_SOURCES
                && source != Origin::Local(into)
                && !(matches!(source, Origin::Remote(_)) && last.sources.contains(&source)) =>
        {
            last.sources.push(source);
        }
        _ => folds.push(FusedFold::storing(into, vec![Origin::Local(into), source])),
    }
}

/// Drops stores that no fold reads: the span is overwritten first, or it is scratch at the end.
fn forget_dead_stores(folds: &mut [FusedFold], by_stream: impl Fn(usize) -> bool) {
    for at in 0..folds.len() {
        let Some(span) = folds[at].into else { continue };
        let apart = Placement::Apart;
        let next = folds[at + 1..].iter().find(|f| f.reads(span, apart) || f.into == Some(span));
        let dead = next.map_or(span.buffer == Buffer::Scratch, |f| !f.reads(span, apart));
        if dead && !folds[at].to.is_empty() && !folds[at].to.iter().any(|peer| by_stream(*peer)) {
            folds[at].into = None;
        }
    }
}

/// The proof order itself, as folds: nothing fused, and every send where its receiver takes it. It
/// completes with one slot and with links that hold nothing, whatever the schedule.
pub(super) fn linear(schedules: &[Schedule]) -> Result<Vec<Vec<FusedFold>>, Stuck> {
    let mut order = ProofOrder(vec![Vec::new(); schedules.len()]);
    walk(schedules, Placement::Apart, &mut order)?;
    Ok(order.0)
}

struct ProofOrder(Vec<Vec<FusedFold>>);

impl Meaning for ProofOrder {
    type Message = Span;

    fn send(&mut self, _: usize, _: usize, from: Span, _: usize) -> Span {
        from
    }

    fn receive(
        &mut self,
        rank: usize,
        _: usize,
        into: Span,
        from: usize,
        message: Span,
        reduce: bool,
    ) {
        self.0[from].push(FusedFold::sending(message, rank));
        let mut sources = vec![Origin::Remote(from)];
        if reduce {
            sources.insert(0, Origin::Local(into));
        }
        self.0[rank].push(FusedFold::storing(into, sources));
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        let mut sources = vec![Origin::Local(from)];
        if reduce {
            sources.insert(0, Origin::Local(into));
        }
        self.0[rank].push(FusedFold::storing(into, sources));
    }
}
