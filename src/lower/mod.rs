//! Lowering: all ranks' schedules become one rank's [`Program`] of folds. Pure.
//!
//! Because schedules are pure functions, every rank can read those of all ranks. So which
//! publication a receive means, how many hops lie before a fold, what a publication proves about
//! its writer's reading, and how many slots a ring needs are all constants that are settled here,
//! before anything runs; the executor matches and negotiates nothing.
//!
//! After fusing there is *one* operation at run time: combine k sources, in order, into a buffer of
//! ours, a publication, or both. Windows are a software pipeline: window `k` of a fold runs at
//! clock `k + stage`, where the stage counts the hops before it. The program holds each fold once,
//! whatever the number of windows; its prologue, body and epilogue are which stages are active at a
//! clock.
//!
//! Three ways are tried, and the first that provably completes is taken: fused folds with windows
//! overlapped; fused folds with windows one after another; and the proof order itself, which always
//! completes.

mod emit;
mod fuse;
mod order;
mod program;
mod strategy;
mod traffic;

use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::walk::Stuck;
use crate::schedule::{Layout, Placement, Schedule};
use emit::Emitter;
pub use program::{
    Extent, Flush, Fold, FoldSource, MAX_SOURCES, Numbering, Program, SourceLocation, StreamLink,
};
use strategy::{choose, reads_what_it_wrote, windows};
pub use traffic::ProgramTraffic;

/// What is lowered, equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct LoweringInput<'a> {
    /// What the schedules do.
    pub collective: Collective,
    /// One schedule a rank.
    pub schedules: &'a [Schedule],
    /// How the whole is cut into chunks.
    pub layout: &'a Layout,
    /// Bytes of an element.
    pub element: usize,
    /// Which ranks share a board; streams join the others.
    pub boards: &'a Boards,
    /// Bytes of a window of the longest chunk, at most; boards lower it to what a slot holds.
    pub window: usize,
    /// What all ranks' calls must agree on, condensed.
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
    assert_eq!(
        request.schedules.len(),
        request.boards.world(),
        "one schedule and one board for each rank"
    );
    assert!(request.element > 0, "elements have bytes");
    let windows = windows(request);
    let strategy = choose(request, windows)?;
    let stages_input = placement == Placement::InPlace
        && (!strategy.in_place || reads_what_it_wrote(&strategy.all[me]));
    let placement = if stages_input { Placement::Apart } else { placement };
    Ok(Emitter::new(request, &strategy, me, windows, placement).emit(stages_input))
}
