//! Fuses the steps of one window into folds.
//!
//! Sends of one span to several peers become one publication. A first write and the reductions
//! after it become one fold. A fold whose result is sent becomes a fold that publishes. A result
//! that is only sent on is not stored.

use super::folds::{FusedFolds, Origin, SpanIndex};
use super::program::MAX_SOURCES;
use crate::schedule::hosts::Boards;
use crate::schedule::walk::{Meaning, Stuck, walk};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};
use std::ops::Range;

/// Fuses the steps of `ranks`, whose schedules these are. A stream sends from a buffer, so a result
/// that goes to a rank of another board must be stored.
pub(super) fn fuse(schedules: &[Schedule], ranks: Range<usize>, boards: &Boards) -> FusedFolds {
    let mut folds = fuse_with_stores(schedules, ranks, boards.world());
    forget_dead_stores(&mut folds, schedules, |folds, rank, place| {
        folds.is_taken_from_buffer(place, rank, boards)
    });
    folds
}

/// Fuses the steps of `ranks`, whose schedules these are, in a world of `world` ranks. Every result
/// that a step stores is stored.
pub(super) fn fuse_with_stores(
    schedules: &[Schedule],
    ranks: Range<usize>,
    world: usize,
) -> FusedFolds {
    folds(schedules.iter().map(|schedule| &schedule.steps), ranks, world, true)
}

/// Folds of the steps of each of `ranks`, which may be fused.
fn folds<'a>(
    steps: impl Iterator<Item = &'a Vec<Step>> + Clone,
    ranks: Range<usize>,
    world: usize,
    may_fuse: bool,
) -> FusedFolds {
    let count = steps.clone().map(Vec::len).sum();
    let mut fuser = Fuser {
        folds: FusedFolds::with_capacity(ranks, count),
        first: 0,
        reached: vec![usize::MAX; world],
        may_fuse,
    };
    for steps in steps {
        steps.iter().for_each(|step| fuser.add(*step));
        fuser.end_rank();
    }
    fuser.folds
}

/// The folds so far, and properties of the last one.
struct Fuser {
    folds: FusedFolds,
    /// The first fold of the rank whose steps are added.
    first: usize,
    /// By peer: the last fold that sends to it.
    reached: Vec<usize>,
    /// False if each step is a fold of its own.
    may_fuse: bool,
}

impl Fuser {
    fn add(&mut self, step: Step) {
        match step {
            Step::Send { from, to } => self.send(from, to),
            Step::Copy { from, into } => self.folds.store(into, &[Origin::Local(from)]),
            Step::Recv { into, from } => self.folds.store(into, &[Origin::Remote(from as u32)]),
            Step::Reduce { from, into } => self.reduce(into, Origin::Local(from)),
            Step::RecvReduce { into, from } => self.reduce(into, Origin::Remote(from as u32)),
        }
    }

    /// The last fold of the rank whose steps are added, if the next step may join it.
    fn last(&self) -> Option<usize> {
        self.folds.len().checked_sub(1).filter(|last| self.may_fuse && *last >= self.first)
    }

    fn send(&mut self, from: Span, to: usize) {
        // A publication is read once by each of its readers.
        let joins =
            |last: &usize| self.folds.sent(*last) == Some(from) && self.reached[to] != *last;
        let fold = self.last().filter(joins).unwrap_or_else(|| {
            self.folds.add(None, from, [Origin::Local(from)]);
            self.folds.len() - 1
        });
        self.folds.send_last_to(to);
        self.reached[to] = fold;
    }

    fn reduce(&mut self, into: Span, source: Origin) {
        // A fold reads all its sources before it writes, so none of them may be the result of
        // the fold so far; and a stream lends one message at a time.
        let joins = |last: &usize| {
            let sources = self.folds.sources(*last);
            self.folds.stored(*last) == Some(into)
                && self.folds.to(*last).is_empty()
                && sources.len() < MAX_SOURCES
                && source != Origin::Local(into)
                && !(matches!(source, Origin::Remote(_)) && sources.contains(&source))
        };
        match self.last().filter(joins) {
            Some(_) => self.folds.join_last(source),
            None => self.folds.store(into, &[Origin::Local(into), source]),
        }
    }

    fn end_rank(&mut self) {
        self.folds.end_rank();
        self.first = self.folds.len();
    }
}

/// How a span is used next.
#[derive(Clone, Copy, Eq, PartialEq)]
enum NextUse {
    Never,
    Read,
    Overwritten,
}

/// Drops the stores of results that are sent and that no fold reads: the span is overwritten first,
/// or it is scratch at the end. A store stays if `is_taken_from_buffer` is true of some receiver,
/// given by the sender's rank and its own place: it takes the result from the buffer.
pub(super) fn forget_dead_stores(
    folds: &mut FusedFolds,
    schedules: &[Schedule],
    is_taken_from_buffer: impl Fn(&FusedFolds, usize, usize) -> bool,
) {
    let index = SpanIndex::new(schedules, Placement::Apart);
    // By span of the rank: how later folds use it.
    let mut next = vec![NextUse::Never; index.len()];
    for rank in folds.ranks() {
        next.fill(NextUse::Never);
        for fold in folds.of(rank).rev() {
            if let Some(span) = folds.stored(fold) {
                let dead = match next[index.of(span)] {
                    NextUse::Never => span.buffer == Buffer::Scratch,
                    NextUse::Read => false,
                    NextUse::Overwritten => true,
                };
                let mut to = folds.to_places(fold);
                let is_taken = |place| is_taken_from_buffer(folds, rank, place);
                if dead && !to.is_empty() && !to.any(is_taken) {
                    folds.drop_store(fold);
                }
                next[index.of(span)] = NextUse::Overwritten;
            }
            folds.reads(fold).for_each(|span| next[index.of(span)] = NextUse::Read);
        }
    }
}

/// The proof order itself, as folds: nothing fused, and every send where its receiver takes it. It
/// completes with one slot and with links that hold nothing, for every schedule.
///
/// These are the schedules of `ranks`: of all ranks, or of one board. A board takes the messages that it
/// sends to others itself, at its ranks in the same places. That is the order of all boards if it keeps the
/// order of each link; [`Matching`](super::order::Matching) and the trial show whether it does.
///
/// # Errors
/// [`Stuck`] if the schedules do not complete.
pub(super) fn linear(
    schedules: &[Schedule],
    ranks: Range<usize>,
    world: usize,
) -> Result<FusedFolds, Stuck> {
    let width = ranks.len();
    let within = |schedule: &Schedule| {
        let steps = schedule.steps.iter().map(|step| step.map(|span| span, |peer| peer % width));
        Schedule { steps: steps.collect(), ..*schedule }
    };
    let here: Vec<Schedule> = schedules.iter().map(within).collect();
    let mut order = ProofOrder { schedules, order: vec![Vec::new(); schedules.len()] };
    walk(&here, Placement::Apart, &mut order)?;
    Ok(folds(order.order.iter(), ranks, world, false))
}

/// The steps of the ranks whose schedules are walked, in proof order.
struct ProofOrder<'a> {
    schedules: &'a [Schedule],
    /// By rank.
    order: Vec<Vec<Step>>,
}

impl Meaning for ProofOrder<'_> {
    /// The send.
    type Message = Step;

    fn send(&mut self, rank: usize, step: usize, _: Span, _: usize) -> Step {
        self.schedules[rank].steps[step]
    }

    fn receive(&mut self, rank: usize, step: usize, _: Span, from: usize, send: Step, _: bool) {
        self.order[from].push(send);
        self.order[rank].push(self.schedules[rank].steps[step]);
    }

    fn local(&mut self, rank: usize, step: usize, _: Span, _: Span, _: bool) {
        self.order[rank].push(self.schedules[rank].steps[step]);
    }
}
