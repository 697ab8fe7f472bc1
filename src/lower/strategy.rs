//! The choice of a strategy for the schedules of all ranks: the first that provably completes.
//!
//! Three are tried. (1) Fused folds with windows overlapped: each fold has a stage that counts the
//! hops before it. (2) Fused folds, one window after another. (3) The proof order: nothing fused,
//! every send where its receiver takes it. This completes with one slot and links that hold
//! nothing, for every schedule.
//!
//! The proofs of the first two are in [`proof`](super::proof). A deadlock is found when the program
//! is made, never while it runs.

use super::LoweringInput;
use super::folds::{FusedFolds, SpanIndex};
use super::fuse::{fuse, linear};
use super::order::{Matching, by_stage, stages};
use super::proof::OrderedFolds;
use crate::schedule::conflict::StepOrder;
use crate::schedule::walk::Stuck;
use crate::schedule::{Buffer, Placement, Symmetry, input};
use maypole_transports::board::{CHUNK, SlotClass, lines};
use std::ops::Range;

/// The slots of a mailbox in a GPU's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceSlots {
    /// Bytes of the longest publication.
    pub bytes: usize,
    /// Slots of each rank.
    pub count: usize,
}

/// The slots that a program may use.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotRule {
    /// Those of the smallest class of a board that suffices.
    Board,
    /// Those of a mailbox.
    Device(DeviceSlots),
    /// Lines of a board, which have no payload: ranks reach one another's memory, and all of them
    /// call with this placement.
    Lines(Placement),
}

/// A strategy that completes.
pub(super) struct Strategy {
    pub(super) folds: FusedFolds,
    pub(super) matching: Matching,
    /// By fold.
    pub(super) stages: Vec<u32>,
    /// The folds of each rank in the executor's order.
    pub(super) order: Vec<u32>,
    pub(super) slots: Slots,
}

/// Where publications lie.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) class: SlotClass,
    pub(super) depth: usize,
    /// True if the schedules also complete when every rank calls in place.
    pub(super) in_place: bool,
}

/// The longest trial where another strategy could be taken: more steps take more time than
/// overlapped windows save.
const LONGEST_TRIAL: u64 = 100_000;

/// A call that is lowered: its input, the slots that its program may use, and its windows.
#[derive(Clone, Copy)]
pub(super) struct Lowering<'a> {
    pub(super) request: &'a LoweringInput<'a>,
    rule: SlotRule,
    /// As few as there can be such that none is too long.
    pub(super) windows: u32,
}

impl<'a> Lowering<'a> {
    /// # Panics
    /// If the element size is zero.
    pub(super) fn new(request: &'a LoweringInput<'a>, rule: SlotRule) -> Self {
        assert!(request.element > 0, "elements have bytes");
        let limit = match rule {
            SlotRule::Board if request.boards.is_shared() => request.window.min(CHUNK),
            SlotRule::Board | SlotRule::Lines(_) => request.window,
            SlotRule::Device(slots) => request.window.min(slots.bytes),
        };
        let elements = (limit / request.element).max(1);
        let windows = u32::try_from(request.layout.longest().div_ceil(elements).max(1));
        Self { request, rule, windows: windows.expect("fewer than 2^32 windows") }
    }

    /// The first strategy that completes.
    ///
    /// # Errors
    /// [`Stuck`] if the schedules do not complete under the law of schedules.
    pub(super) fn choose(&self) -> Result<Strategy, Stuck> {
        let LoweringInput { schedules, boards, .. } = *self.request;
        let folds = fuse(schedules, 0..boards.world(), boards);
        if let Some(strategy) = Matching::new(&folds).and_then(|it| self.fused(folds, it)) {
            return Ok(strategy);
        }
        let folds = linear(schedules, 0..boards.world(), boards.world())?;
        let matching = Matching::new(&folds).expect("the steps that are taken match");
        let strategy = self.in_order(folds, matching, &[StepOrder::List]);
        Ok(strategy.expect("the proof order completes with any slots"))
    }

    /// The first strategy with fused folds that completes, where the request has the schedules of the board
    /// of rank `me` and those of the others follow by `symmetry`.
    ///
    /// In a run in which all boards take their steps at the same time, each board is always where the
    /// others are. So the folds of one board, whose messages it exchanges with itself, have the stages
    /// that the folds of all ranks have; and if these programs could wait for one another, this board
    /// would wait for itself.
    pub(super) fn choose_symmetric(&self, symmetry: Symmetry, me: usize) -> Option<Strategy> {
        let LoweringInput { schedules, boards, .. } = *self.request;
        let width = schedules.len();
        let ranks = me / width * width..(me / width + 1) * width;
        let folds = fuse(schedules, ranks.clone(), boards);
        let matching = Matching::of_board(&folds, boards, symmetry)?;
        self.fused(folds, matching).or_else(|| {
            let folds = linear(schedules, ranks, boards.world()).ok()?;
            let matching = Matching::of_board(&folds, boards, symmetry)?;
            self.in_order(folds, matching, &[StepOrder::List])
        })
    }

    /// The first of the two strategies with fused folds that completes. The order of the schedules comes
    /// first where windows do not overlap and messages leave together in it.
    pub(super) fn fused(&self, folds: FusedFolds, matching: Matching) -> Option<Strategy> {
        let streams_alone = self.windows == 1 && !self.request.boards.is_shared();
        let orders = match streams_alone && folds.has_messages_in_a_row() {
            true => [StepOrder::List, StepOrder::Conflict],
            false => [StepOrder::Conflict, StepOrder::List],
        };
        self.in_order(folds, matching, &orders)
    }

    /// These folds in the first of `orders` in which all programs complete.
    fn in_order(
        &self,
        folds: FusedFolds,
        matching: Matching,
        orders: &[StepOrder],
    ) -> Option<Strategy> {
        let LoweringInput { schedules, boards, .. } = *self.request;
        let (stages, order, slots) = orders.iter().find_map(|order| {
            let (stages, order) = match order {
                StepOrder::List => listed(&folds),
                StepOrder::Conflict => {
                    let index = SpanIndex::new(schedules, Placement::InPlace);
                    let stages = stages(&folds, &matching, boards.world(), index)?;
                    let order = by_stage(&folds, &stages);
                    (stages, order)
                }
            };
            let slots = self.slots(&OrderedFolds {
                folds: &folds,
                matching: &matching,
                stages: &stages,
                order: &order,
                boards,
                deepest: stages.iter().copied().max().unwrap_or(0),
            })?;
            Some((stages, order, slots))
        })?;
        Some(Strategy { folds, matching, stages, order, slots })
    }

    /// The smallest slots with which all programs complete.
    fn slots(&self, ordered: &OrderedFolds<'_>) -> Option<Slots> {
        let Self { request, rule, windows } = *self;
        // The smallest board that is shared has the fewest slots.
        let shared = request.boards.sizes().into_iter().filter(|ranks| *ranks > 1);
        let ranks = shared.min().unwrap_or(1);
        let bytes = request.layout.longest().div_ceil(windows as usize) * request.element;
        let unread = ordered.most_unread(windows);
        let depth_of = |class: SlotClass| match rule {
            SlotRule::Board => class.slots(ranks),
            SlotRule::Device(slots) => slots.count,
            SlotRule::Lines(_) => lines(ranks),
        };
        if let SlotRule::Lines(placement) = rule {
            // Only a trial shows whether ranks touch a byte at the same time.
            let depth = depth_of(SlotClass::Tiny);
            let index = SpanIndex::new(request.schedules, placement);
            let trial = ordered.windows_of_trial(windows, depth as u64);
            let in_place = placement == Placement::InPlace;
            return ordered.completes_by_trial(depth as u64, trial, index).then_some(Slots {
                class: SlotClass::Tiny,
                depth,
                in_place,
            });
        }
        let smallest = SlotClass::holding(bytes).unwrap_or(SlotClass::Chunk);
        let completes = |class: SlotClass, placement| {
            let depth = depth_of(class) as u64;
            let index = match placement {
                Placement::Apart => SpanIndex::new(request.schedules, placement),
                Placement::InPlace => SpanIndex::mixed(request.schedules),
            };
            let trial = ordered.windows_of_trial(windows, depth);
            let is_short = trial == 1 || ordered.steps_of_trial(trial) <= LONGEST_TRIAL;
            ordered.completes_by_order(unread, depth, index)
                || (is_short && ordered.completes_by_trial(depth, trial, index))
        };
        let class = [smallest, SlotClass::Chunk]
            .into_iter()
            .find(|class| completes(*class, Placement::Apart))?;
        // Placement decides only which posts a fold waits for.
        let in_place = request.boards.count() <= 1 || completes(class, Placement::InPlace);
        Some(Slots { class, depth: depth_of(class), in_place })
    }
}

/// The order of the schedules: no stages, so that windows run one after another.
fn listed(folds: &FusedFolds) -> (Vec<u32>, Vec<u32>) {
    (vec![0; folds.len()], (0..folds.len() as u32).collect())
}

/// True if one of the folds `own` of a rank reads an input chunk that an earlier one, in place, has
/// overwritten.
pub(super) fn reads_what_it_wrote(folds: &FusedFolds, own: Range<usize>, index: SpanIndex) -> bool {
    // By span, the last fold that reads it.
    let mut last = vec![None; index.len()];
    for fold in own.clone() {
        folds.reads(fold).for_each(|span| last[index.of(span)] = Some(fold));
    }
    own.clone().any(|fold| {
        let changed = folds.changed(fold, Placement::InPlace);
        let Some(into) = changed.filter(|into| into.buffer == Buffer::Output) else {
            return false;
        };
        last[index.of(input(into.chunk))].is_some_and(|read| read > fold)
    })
}
