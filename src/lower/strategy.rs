//! How the schedules of all ranks are run: the first strategy that provably completes.
//!
//! Three are tried. (1) Fused folds with windows overlapped: each fold has a stage that counts the
//! hops before it. (2) Fused folds, one window after another. (3) The proof order: nothing fused,
//! every send where its receiver takes it. This completes with one slot and links that hold
//! nothing, whatever the schedule.
//!
//! The proof of the first two is a trial run of all ranks' programs on counters, with the real
//! number of slots and enough windows that every ring of slots wraps while all stages are busy. A
//! deadlock is found when the program is made, never while it runs. The trial moves no bytes, and
//! its result is kept with the program.

use super::LoweringInput;
use super::fuse::{FusedFold, Origin, fuse, linear};
use super::order::{Matching, Trial, stages};
use crate::schedule::hosts::Boards;
use crate::schedule::walk::Stuck;
use crate::schedule::{Buffer, Placement, Schedule, Span};
use maypole_transports::board::{CHUNK, SlotClass};

/// The smallest number of windows such that no window is too long.
pub(super) fn windows(request: &LoweringInput<'_>) -> u32 {
    let shared = request.boards.is_shared();
    let limit = if shared { request.window.min(CHUNK) } else { request.window };
    let elements = (limit / request.element).max(1);
    u32::try_from(request.layout.longest().div_ceil(elements).max(1))
        .expect("fewer than 2^32 windows")
}

/// A way of running the schedules that completes.
pub(super) struct Strategy {
    pub(super) all: Vec<Vec<FusedFold>>,
    pub(super) matching: Matching,
    pub(super) stages: Vec<Vec<u32>>,
    pub(super) class: SlotClass,
    pub(super) depth: usize,
    /// True if it also completes when every rank calls in place.
    pub(super) in_place: bool,
}

pub(super) fn choose(request: &LoweringInput<'_>, windows: u32) -> Result<Strategy, Stuck> {
    let boards = request.boards;
    let fused =
        |(rank, schedule): (usize, &Schedule)| fuse(schedule, |peer| !boards.together(peer, rank));
    let all: Vec<_> = request.schedules.iter().enumerate().map(fused).collect();
    if let Some(matching) = Matching::new(&all) {
        let listed = all.iter().map(|folds| vec![0; folds.len()]).collect();
        let overlapped = stages(&all, &matching);
        for stages in overlapped.into_iter().chain([listed]) {
            if let Some(strategy) = attempt(request, windows, &all, &matching, stages) {
                return Ok(strategy);
            }
        }
    }
    let all = linear(request.schedules)?;
    let matching = Matching::new(&all).expect("the proof order has a send for each receive");
    let stages = all.iter().map(|folds| vec![0; folds.len()]).collect();
    Ok(attempt(request, windows, &all, &matching, stages)
        .expect("the proof order completes with any slots"))
}

fn attempt(
    request: &LoweringInput<'_>,
    windows: u32,
    all: &[Vec<FusedFold>],
    matching: &Matching,
    stages: Vec<Vec<u32>>,
) -> Option<Strategy> {
    let ranks = ranks_of_smallest_board(request.boards);
    let bytes = request.layout.longest().div_ceil(windows as usize) * request.element;
    let smallest = SlotClass::holding(bytes).unwrap_or(SlotClass::Chunk);
    let completes = |class: SlotClass, placement| {
        let depth = class.slots(ranks) as u64;
        Trial { all, matching, stages: &stages, boards: request.boards, placement, windows, depth }
            .completes()
    };
    let class = [smallest, SlotClass::Chunk]
        .into_iter()
        .find(|class| completes(*class, Placement::Apart))?;
    let in_place = completes(class, Placement::InPlace);
    let depth = class.slots(ranks);
    Some(Strategy {
        all: all.to_vec(),
        matching: Matching::clone(matching),
        stages,
        class,
        depth,
        in_place,
    })
}

/// Ranks of the smallest board that is shared: it has the fewest slots.
fn ranks_of_smallest_board(boards: &Boards) -> usize {
    boards.sizes().into_iter().filter(|ranks| *ranks > 1).min().unwrap_or(1)
}

/// True if a fold reads an input chunk that an earlier one, in place, has overwritten.
pub(super) fn reads_what_it_wrote(folds: &[FusedFold]) -> bool {
    let is_self_copy = |fold: &FusedFold, into: Span| match fold.sources[..] {
        [Origin::Local(from)] => from.overlaps(into, Placement::InPlace),
        _ => false,
    };
    folds.iter().enumerate().any(|(at, fold)| {
        let Some(into) = fold.into.filter(|into| into.buffer == Buffer::Output) else {
            return false;
        };
        let input = Span { buffer: Buffer::Input, chunk: into.chunk };
        !is_self_copy(fold, into)
            && folds[at + 1..].iter().any(|later| later.reads(input, Placement::Apart))
    })
}
