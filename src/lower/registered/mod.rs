//! Lowering for buffers that all ranks have registered.
//!
//! Folds read their sources where these lie in other ranks' buffers, and write their results
//! straight to where the receivers want them. Messages have no payload and no slots. Slots decouple
//! ranks: what has been sent may be overwritten. Here it may not, so three rules keep every byte
//! that a rank may still read.
//!
//! * A push is allowed if its receiver has not touched the place before, except to have the pushing
//!   fold itself read it.
//! * A fold that overwrites what other ranks pull waits until they are done: it has *drains*.
//! * Input is lent without a message only if nobody overwrites it, except the fold that reads it.
//!
//! Memory that the kernel [copies](ReachedMemory::Copied) is never pushed to, and no fold combines it.
//!
//! The trial run of all ranks' folds counts the waits that follow from these rules, and its race
//! detector proves that they are enough.

mod access;
mod emit;
mod fold;
mod races;
mod stages;
mod trial;

use super::LoweringInput;
use super::program::Program;
use crate::schedule::hosts::ReachedMemory;
use crate::schedule::{Buffer, Placement, Span};
use access::reach_registered;
use emit::ReachEmitter;
use fold::ReachFold;
use stages::pipelined;
use trial::ReachTrial;

/// A program that runs on registered memory.
#[derive(Clone, Debug)]
pub struct RegisteredProgram {
    /// The program, whose [`registered`](Program::registered) is there.
    pub program: Program,
    /// True if ranks may also call with one buffer as input and output. Equal on all ranks.
    pub allows_in_place: bool,
}

/// Lowers the schedule of rank `me` for memory that other ranks reach by `access`. A window may have
/// any length.
///
/// `None` if the schedules cannot run so, for one of these reasons: a rank passes on what it keeps in
/// scratch; a rank combines what it can only copy; the program would deadlock; the ranks do not all
/// share one board.
///
/// Whether there is a program is equal on all ranks.
///
/// # Panics
/// If there is not one schedule and one board for each rank, or the element size is zero.
pub fn lower_registered(
    request: &LoweringInput<'_>,
    me: usize,
    access: ReachedMemory,
) -> Option<RegisteredProgram> {
    let world = request.boards.world();
    assert_eq!(request.schedules.len(), world, "one schedule and one board for each rank");
    assert!(request.element > 0, "elements have bytes");
    if request.boards.locals(me).len() < world || world < 2 {
        return None;
    }
    let elements = (request.window / request.element).max(1);
    let windows = u32::try_from(request.layout.longest().div_ceil(elements).max(1)).ok()?;
    // A program that completes when every rank calls in place does so whatever each rank does.
    [Placement::InPlace, Placement::Apart].into_iter().find_map(|placement| {
        let (all, stages) = completing(request, windows, placement, access)?;
        let program = ReachEmitter { request, all: &all, stages: &stages, windows, me }.emit();
        Some(RegisteredProgram { program, allows_in_place: placement == Placement::InPlace })
    })
}

/// All ranks' folds, and their stages.
type StagedFolds = (Vec<Vec<ReachFold>>, Vec<Vec<u32>>);

/// All ranks' folds and their stages; `None` if no order of theirs completes.
fn completing(
    request: &LoweringInput<'_>,
    windows: u32,
    placement: Placement,
    access: ReachedMemory,
) -> Option<StagedFolds> {
    let all = reach_registered(request.schedules, placement, access)?;
    if placement == Placement::InPlace && all.iter().any(|folds| reads_overwritten(folds)) {
        return None;
    }
    let listed = all.iter().map(|folds| vec![0; folds.len()]).collect();
    let succeeds =
        |stages: &Vec<Vec<u32>>| ReachTrial { all: &all, stages, placement, windows }.succeeds();
    let stages = pipelined(&all).into_iter().chain([listed]).find(succeeds)?;
    Some((all, stages))
}

/// True if a fold reads an input chunk that an earlier one, in place, has overwritten.
fn reads_overwritten(folds: &[ReachFold]) -> bool {
    folds.iter().enumerate().any(|(at, fold)| {
        let is_output = |into: &Span| into.buffer == Buffer::Output;
        let Some(into) = fold.into.filter(is_output) else { return false };
        let input = Span { buffer: Buffer::Input, chunk: into.chunk };
        !fold.is_self_copy(Placement::InPlace)
            && folds[at + 1..].iter().any(|later| later.reads(input, Placement::Apart))
    })
}
