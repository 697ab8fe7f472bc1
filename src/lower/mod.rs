//! Lowering: all ranks' schedules become one rank's [`Program`] of folds.
//!
//! Because schedules are pure functions, every rank can compute those of all ranks. So these are
//! constants, settled before anything runs: the publication that each receive takes, the number of
//! hops before each fold, the reads that a publication of a rank proves, and the number of slots of
//! a ring. The executor matches and negotiates nothing.
//!
//! After fusing there is *one* operation at run time, the [`Fold`]: combine k sources, in order,
//! into a buffer of the rank, a publication, or both. Windows are a software pipeline: window `k`
//! of a fold runs at clock `k + stage`, where the stage counts the hops before it. The program
//! holds each fold once, for any number of windows. The stages that are active at a clock make its
//! prologue, body and epilogue.
//!
//! Three strategies are tried, and the first that provably completes is taken: fused folds with
//! windows overlapped; fused folds with windows one after another; and the proof order itself,
//! which always completes.

mod device;
mod emit;
mod exchange;
mod flush;
mod folds;
mod footprint;
mod fuse;
mod order;
mod peers;
mod program;
mod proof;
mod publications;
mod races;
mod registered;
mod strategy;
mod traffic;

use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::walk::Stuck;
use crate::schedule::{Layout, Placement, Schedule, Symmetry};
pub use device::{BufferPlaces, DeviceProgram};
use emit::Emitter;
use folds::SpanIndex;
pub use program::{
    Extent, Flush, Fold, FoldSource, MAX_SOURCES, Numbering, Program, Push, RegisteredAccess,
    SourceLocation, StreamLink,
};
pub use registered::lower_registered;
pub use strategy::DeviceSlots;
use strategy::{Lowering, SlotRule, Strategy, reads_what_it_wrote};
pub use traffic::ProgramTraffic;

/// The input of lowering, equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct LoweringInput<'a> {
    /// The collective that the schedules do.
    pub collective: Collective,
    /// One schedule a rank; for [`lower_symmetric`], those of the lowered rank's board alone.
    pub schedules: &'a [Schedule],
    /// The layout of the whole in chunks.
    pub layout: &'a Layout,
    /// Bytes of an element.
    pub element: usize,
    /// Which ranks share a board; streams join the others.
    pub boards: &'a Boards,
    /// Most bytes of a window of the longest chunk. With boards, a window is at most a slot long.
    pub window: usize,
    /// A hash of everything that the calls of all ranks must agree on.
    pub fingerprint: u64,
}

/// Lowers the schedule of rank `me`.
///
/// # Errors
/// [`Stuck`] if the schedules do not complete under the law of schedules; those that
/// [`verify`](crate::schedule::verify::verify) accepts do.
///
/// # Panics
/// If there is not one schedule and one board for each rank, or the element size is zero.
pub fn lower(
    request: &LoweringInput<'_>,
    me: usize,
    placement: Placement,
) -> Result<Program, Stuck> {
    lower_with(request, SlotRule::Board, me, placement)
}

/// Lowers the schedule of rank `me` for the memory of GPUs, where all ranks reach one another's
/// mailboxes: as [`lower`], but a window is at most a slot of a mailbox long.
///
/// # Errors
/// As [`lower`].
///
/// # Panics
/// As [`lower`], or if not all ranks share one board.
pub fn lower_for_device(
    request: &LoweringInput<'_>,
    slots: DeviceSlots,
    me: usize,
    placement: Placement,
) -> Result<Program, Stuck> {
    assert_eq!(request.boards.count(), 1, "all ranks reach one another's mailboxes");
    lower_with(request, SlotRule::Device(slots), me, placement)
}

fn lower_with(
    request: &LoweringInput<'_>,
    slots: SlotRule,
    me: usize,
    placement: Placement,
) -> Result<Program, Stuck> {
    let world = request.boards.world();
    assert_eq!(request.schedules.len(), world, "one schedule and one board for each rank");
    let lowering = Lowering::new(request, slots);
    Ok(lowering.emit(&lowering.choose()?, me, placement))
}

/// Lowers the schedule of rank `me`. `request` has those of its board alone, and the schedules of all ranks
/// follow from them by `symmetry`. The program is that of [`lower`], made in a time that grows with the steps of
/// one board, not with those of all ranks. `None` if fused folds do not provably complete; [`lower`] finds
/// another way then.
///
/// # Panics
/// If boards have unequal numbers of ranks, if there is not one schedule for each rank of one, or if the
/// element size is zero.
pub fn lower_symmetric(
    request: &LoweringInput<'_>,
    symmetry: Symmetry,
    me: usize,
    placement: Placement,
) -> Option<Program> {
    let schedules = Some(request.schedules.len());
    assert_eq!(request.boards.width(), schedules, "one schedule for each rank of a board");
    let lowering = Lowering::new(request, SlotRule::Board);
    Some(lowering.emit(&lowering.choose_symmetric(symmetry, me)?, me, placement))
}

impl Lowering<'_> {
    fn emit(&self, strategy: &Strategy, me: usize, placement: Placement) -> Program {
        let folds = &strategy.folds;
        let index = SpanIndex::new(self.request.schedules, Placement::Apart);
        let stages_input = placement == Placement::InPlace
            && (!strategy.slots.in_place || reads_what_it_wrote(folds, folds.of(me), index));
        let placement = if stages_input { Placement::Apart } else { placement };
        Emitter::new(self, strategy, me, placement).emit(stages_input)
    }
}
