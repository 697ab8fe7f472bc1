//! Lowering for buffers that all ranks have registered.
//!
//! Folds read their sources directly from other ranks' buffers, and write their results directly to
//! the receivers' buffers. Messages have no payload and no slots.
//!
//! # How a message becomes an access
//!
//! A fold that sends leaves its result in place, and its receiver reads it there (a *pull*); or it
//! writes its result to where its receiver would store it (a *push*). Either way a message without
//! payload signals when. Where input stays as it is during the call, not even that is needed: it is
//! *lent* from the start.
//!
//! Slots decouple ranks: sent bytes may be overwritten. Here they may not, so three rules keep
//! every byte that a rank may still read.
//!
//! * A push is allowed if its receiver has not touched the place before, except to have the pushing
//!   fold itself read it.
//! * A fold that overwrites bytes that other ranks pull waits until they are done, as it waits for
//!   a stream that still sends from there ([`flush`](super::flush)).
//! * Input is lent without a message only if no fold overwrites it, except the fold that reads it, or one
//!   that waits for that fold.
//!
//! Memory that the kernel [copies](ReachedMemory::Copied) is never pushed to, and no fold combines it.
//!
//! All else is as for slots and streams. The trial run of all ranks' folds counts the waits that
//! follow from these rules, and its race detector proves that they are enough.

use super::LoweringInput;
use super::folds::{FusedFolds, Origin, SpanIndex};
use super::fuse::{forget_dead_stores, fuse_with_stores};
use super::order::Matching;
use super::program::Program;
use super::strategy::{Lowering, SlotRule, Strategy, reads_what_it_wrote};
use crate::schedule::hosts::ReachedMemory;
use crate::schedule::{Buffer, Placement, Schedule, Span};

/// Lowers the schedule of rank `me` for memory that other ranks reach by `access`. A window may have
/// any length. The [`registered`](Program::registered) of the program is `Some`.
///
/// `None` if the schedules cannot run so, for one of these reasons: a rank passes on scratch
/// memory; a rank combines data that it can only copy; the program would deadlock; the ranks do not
/// all share one board.
///
/// Whether there is a program is equal on all ranks.
///
/// # Panics
/// If there is not one schedule and one board for each rank, or the element size is zero.
pub fn lower_registered(
    request: &LoweringInput<'_>,
    me: usize,
    access: ReachedMemory,
) -> Option<Program> {
    let world = request.boards.world();
    assert_eq!(request.schedules.len(), world, "one schedule and one board for each rank");
    if request.boards.count() > 1 || world < 2 {
        return None;
    }
    // A program that completes when every rank calls in place also completes for any mix of
    // placements.
    [Placement::InPlace, Placement::Apart].into_iter().find_map(|placement| {
        let lowering = Lowering::new(request, SlotRule::Lines(placement));
        let strategy = completing(&lowering, placement, access)?;
        Some(lowering.emit(&strategy, me, placement))
    })
}

/// A way of running the schedules, all ranks with this `placement`, that completes.
fn completing(
    lowering: &Lowering<'_>,
    placement: Placement,
    access: ReachedMemory,
) -> Option<Strategy> {
    let schedules = lowering.request.schedules;
    let folds = reaching(schedules, placement, access)?;
    let index = SpanIndex::new(schedules, Placement::Apart);
    let overwrites = |rank| reads_what_it_wrote(&folds, folds.of(rank), index);
    if placement == Placement::InPlace && folds.ranks().any(overwrites) {
        return None;
    }
    let matching = Matching::new(&folds)?;
    lowering.fused(folds, matching)
}

/// The folds of all ranks on memory that others reach by `access`, if `placement` is the placement of
/// every rank; `None` if a result is passed on that lies in no such memory, or bytes are combined
/// that can only be copied.
fn reaching(
    schedules: &[Schedule],
    placement: Placement,
    access: ReachedMemory,
) -> Option<FusedFolds> {
    let world = schedules.len();
    let mut folds = fuse_with_stores(schedules, 0..world, world);
    let matching = Matching::new(&folds)?;
    let messages = FoldMessages::new(&folds, &matching, placement);
    let origins = messages.origins(access)?;
    forget_dead_stores(&mut folds, schedules, |_, _, place| {
        matches!(origins[matching.source(place)], Origin::Pulled(..))
    });
    Some(reached(&folds, &matching, &origins))
}

/// A message from a fold to a source of another fold.
#[derive(Clone, Copy)]
struct FoldMessage {
    sender: usize,
    receiver: usize,
    /// The fold of the sender, and that of the receiver.
    from: usize,
    to: usize,
    /// The place of the source among all.
    source: usize,
}

/// The messages between all folds.
struct FoldMessages<'a> {
    folds: &'a FusedFolds,
    matching: &'a Matching,
    placement: Placement,
    list: Vec<FoldMessage>,
    /// By rank: how many messages it takes, and how many it sends.
    takes: Vec<usize>,
    sends: Vec<usize>,
}

impl<'a> FoldMessages<'a> {
    fn new(folds: &'a FusedFolds, matching: &'a Matching, placement: Placement) -> Self {
        let mut takes = vec![0; folds.ranks().len()];
        let mut sends = takes.clone();
        let mut list = Vec::with_capacity(folds.all_to().len());
        for receiver in folds.ranks() {
            for to in folds.of(receiver) {
                for source in folds.source_places(to) {
                    let Some(sender) = folds.all_sources()[source].sender() else { continue };
                    takes[receiver] += 1;
                    sends[sender] += 1;
                    let from = matching.sent(source);
                    list.push(FoldMessage { sender, receiver, from, to, source });
                }
            }
        }
        Self { folds, matching, placement, list, takes, sends }
    }

    /// All sources, with the access by which each message is reached.
    fn origins(&self, by: ReachedMemory) -> Option<Vec<Origin>> {
        let mut origins = self.folds.all_sources().to_vec();
        for message in &self.list {
            origins[message.source] = match by {
                ReachedMemory::Registered => self.push_or_pull(*message)?,
                ReachedMemory::Copied => self.pull(*message)?,
            };
        }
        for message in &self.list {
            if let Origin::Pulled(peer, span) = origins[message.source]
                && self.is_lent(*message, span, &origins)
            {
                origins[message.source] = Origin::Lent(peer, span);
            }
        }
        Some(origins)
    }

    /// The span of the sent bytes, if they are in registered memory.
    fn home(&self, message: FoldMessage) -> Option<Origin> {
        let home = self.folds.sent(message.from).filter(|span| span.buffer != Buffer::Scratch)?;
        Some(Origin::Pulled(message.sender as u32, home))
    }

    /// True if the receiver only stores the message.
    fn is_copied(&self, message: FoldMessage) -> bool {
        self.folds.sources(message.to).len() == 1 && self.folds.stored(message.to).is_some()
    }

    /// A reduction is pushed, because its writer has it in registers. A copy is made by whichever
    /// rank has fewer of them to make.
    fn push_or_pull(&self, message: FoldMessage) -> Option<Origin> {
        let home = self.home(message);
        let is_reduction = self.folds.sources(message.from).len() > 1;
        let receiver_is_busier = self.takes[message.receiver] > self.sends[message.sender];
        let is_better = is_reduction || receiver_is_busier || home.is_none();
        if is_better && self.may_push(message) {
            return Some(Origin::Pushed(message.sender as u32));
        }
        home
    }

    /// The whole message is copied to where the receiver stores it.
    fn pull(&self, message: FoldMessage) -> Option<Origin> {
        self.home(message).filter(|_| self.is_copied(message))
    }

    /// True if the sender may write to the receiver: to an output that the receiver has not touched
    /// before, except to have the sending fold itself read it.
    fn may_push(&self, message: FoldMessage) -> bool {
        let folds = self.folds;
        let is_output = |into: &Span| into.buffer == Buffer::Output;
        let Some(into) = folds.stored(message.to).filter(is_output) else { return false };
        let overlaps = |span: Span| span.overlaps(into, self.placement);
        let touches = |fold| folds.reads(fold).chain(folds.stored(fold)).any(overlaps);
        let mut earlier = folds.of(message.receiver).start..message.to;
        self.is_copied(message)
            && earlier.all(|fold| !touches(fold) || self.is_read_by(fold, message.from))
    }

    /// True if `fold` only sends, and `by` is its only reader.
    fn is_read_by(&self, fold: usize, by: usize) -> bool {
        let mut readers = self.folds.to_places(fold).map(|place| self.matching.taken(place));
        self.folds.stored(fold).is_none() && readers.all(|reader| reader == by)
    }

    /// True if `span` of the sender's input stays unchanged until the receiver has read it: no fold
    /// overwrites it, except the reading fold itself, or one that waits for it.
    fn is_lent(&self, message: FoldMessage, span: Span, origins: &[Origin]) -> bool {
        let folds = self.folds;
        let overwrites = |fold: &usize| {
            folds.changed(*fold, self.placement).is_some_and(|it| it.overlaps(span, self.placement))
        };
        let is_behind_reader = |fold: usize| {
            let mut sources = folds.source_places(fold);
            sources.any(|place| {
                matches!(origins[place], Origin::Pushed(_) | Origin::Pulled(..))
                    && self.matching.sent(place) == message.to
            })
        };
        folds.stored(message.from).is_none()
            && span.buffer == Buffer::Input
            && folds.of(message.sender).filter(overwrites).all(is_behind_reader)
    }
}

/// The same folds, whose sources are `origins`. Folds that neither store nor send are left out.
fn reached(folds: &FusedFolds, matching: &Matching, origins: &[Origin]) -> FusedFolds {
    let mut reached = FusedFolds::reaching(folds.ranks(), folds.len());
    let origin = |place: usize| origins[matching.source(place)];
    let is_told = |place: &usize| !matches!(origin(*place), Origin::Lent(..));
    for rank in folds.ranks() {
        for fold in folds.of(rank) {
            let told = folds.to_places(fold).filter(is_told);
            if folds.stored(fold).is_none() && told.clone().next().is_none() {
                continue;
            }
            let sources = folds.source_places(fold).map(|place| origins[place]);
            reached.add(folds.stored(fold), folds.shape(fold), sources);
            for place in told {
                let is_pushed = matches!(origin(place), Origin::Pushed(_));
                let into = folds.shape(matching.taken(place));
                reached.reach_last(folds.all_to()[place] as usize, is_pushed.then_some(into));
            }
        }
        reached.end_rank();
    }
    reached
}
