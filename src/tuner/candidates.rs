//! Every legal row of the table: an algorithm that implements the collective, with a length of
//! windows.

use super::{Plan, Question};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;

/// Lengths of windows between ranks that share boards. Several fit in a core's second-level cache;
/// a slot holds no more than the first.
const BOARD_WINDOWS: [usize; 2] = [32 << 10, 16 << 10];
/// Lengths of windows over streams: combining one overlaps the transfer of the next.
const STREAM_WINDOWS: [usize; 3] = [128 << 10, 512 << 10, 32 << 10];
/// Worlds up to this have a choice of windows: pricing them all takes too long in larger ones.
const CHOICE_OF_WINDOWS: usize = 16;

/// Worlds up to this lower any schedule in some milliseconds.
const SMALL_WORLD: usize = 64;
/// The most steps of all ranks that are lowered if an algorithm with fewer exists: about 40 ms, and
/// 32 MiB meanwhile.
const STEPS: usize = 1 << 16;

/// The most hosts that a barrier joins in all pairs, which it may have to connect first.
const PAIRED_HOSTS: usize = 16;

/// A row of the table with its price.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// Windows of the longest chunk.
    pub windows: usize,
    /// The predicted time of one more call of a row, in nanoseconds.
    pub predicted_ns: u64,
    /// The predicted time of a call alone, in nanoseconds: from the common start to the end of the last rank.
    pub alone_ns: u64,
    /// Whether it was chosen, and if not, why.
    pub verdict: CandidateVerdict,
}

/// Whether a candidate was chosen, and if not, why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CandidateVerdict {
    /// It serves a call alone and a row of calls best, or its algorithm was requested by name.
    Chosen,
    /// Another candidate serves them better, or about as well and is earlier in the table.
    Slower,
    /// Another algorithm was requested by name.
    NotAsked,
    /// It combines the ranks in another order than the call needs.
    OtherOrder,
}

/// The legal rows: an algorithm with a length of windows. `only` limits them to one algorithm.
///
/// The order decides ties: an earlier row wins. The rows are in the reverse order of
/// [`Algorithm::ALL`], so direct algorithms come before those that relay. The hierarchical
/// algorithm comes at the end, and only where there are several hosts and one of them has several
/// ranks. Two lengths with equally many windows of the longest chunk are one row.
pub fn rows(question: &Question<'_>, only: Option<Algorithm>) -> Vec<Plan> {
    match only {
        Some(only) if !only.supports(question.collective) => Vec::new(),
        Some(only) => rows_of(question, only),
        None => answers(question).flat_map(|algorithm| rows_of(question, algorithm)).collect(),
    }
}

/// The algorithms that implement the collective, in the order in which ties are decided. In a large world those
/// whose schedules are too long to be lowered are left out, if others are short.
pub(super) fn answers(question: &Question<'_>) -> impl Iterator<Item = Algorithm> {
    let levels = question.boards.has_levels().then_some(Algorithm::Hierarchical);
    let all = Algorithm::ALL.into_iter().rev().chain(levels);
    let pairs =
        question.collective != Collective::Barrier || question.boards.count() <= PAIRED_HOSTS;
    let able = all.filter(|it| it.supports(question.collective));
    let mut able: Vec<_> = able.filter(|it| pairs || *it != Algorithm::OneShot).collect();
    if question.world() > SMALL_WORLD {
        let (short, long): (Vec<_>, Vec<_>) =
            able.into_iter().partition(|it| is_short(question, *it));
        able = if short.is_empty() { long } else { short };
    }
    able.into_iter()
}

/// True if a rank computes little before its first call by `algorithm`: few steps of the ranks of its
/// board where the others follow from them, else of all ranks.
fn is_short(question: &Question<'_>, algorithm: Algorithm) -> bool {
    let (boards, world) = (question.boards, question.world());
    let is_symmetric = algorithm.symmetry(question.collective, boards).is_some();
    let ranks = if is_symmetric { boards.width().unwrap_or(world) } else { world };
    steps(question.collective, algorithm, boards).is_some_and(|steps| steps * ranks <= STEPS)
}

/// The steps of the rank before the root, which is a leaf of a tree and does what most ranks do. `None` if the
/// algorithm has no schedule.
pub(super) fn steps(of: Collective, by: Algorithm, boards: &Boards) -> Option<usize> {
    let numbers = boards.numbers();
    let rank = (of.root().unwrap_or(0) + numbers.len() - 1) % numbers.len();
    Some(by.schedule_on(of, numbers, rank)?.steps.len())
}

fn rows_of(question: &Question<'_>, algorithm: Algorithm) -> Vec<Plan> {
    let lengths =
        if question.boards.is_shared() { &BOARD_WINDOWS[..] } else { &STREAM_WINDOWS[..] };
    let choice = if question.world() <= CHOICE_OF_WINDOWS { lengths.len() } else { 1 };
    let longest = longest_chunk(question, algorithm);
    let mut rows: Vec<Plan> = Vec::new();
    for &window in &lengths[..choice] {
        if rows.iter().all(|row| longest.div_ceil(row.window) != longest.div_ceil(window)) {
            rows.push(Plan { algorithm, window });
        }
    }
    rows
}

/// Bytes of the longest chunk.
pub(super) fn longest_chunk(question: &Question<'_>, algorithm: Algorithm) -> usize {
    let rank = question.collective.root().unwrap_or(0);
    let chunks = algorithm
        .schedule_on(question.collective, question.boards.numbers(), rank)
        .map_or(1, |schedule| schedule.chunks);
    question.bytes.div_ceil(chunks)
}
