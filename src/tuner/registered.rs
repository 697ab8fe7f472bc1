//! Calls that reach the buffers of other ranks, registered or copied: the plans that they could run
//! by, and the cost of exchanging places.

use super::candidates::{answers, longest_chunk};
use super::price::{self, Pricer};
use super::{Candidate, CostTable, Plan, Question, best};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::ReachedMemory;
use maypole_transports::board::SMALL;

/// Bytes that each rank sends to all others before such a call.
pub(crate) const ANNOUNCEMENT: usize = 48;
/// Lengths of windows. There are no slots to fit into: a whole chunk needs the fewest messages, and
/// windows let ranks that relay overlap.
const WINDOWS: [usize; 2] = [usize::MAX, 128 << 10];
/// The cost of a call if ranks reached one another's buffers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReachingChoice {
    /// Plans with their prices, best first. On registered memory, those that are not cheaper than the best
    /// plan through slots are left out: the exchange of places would not pay.
    pub candidates: Vec<Candidate>,
    /// The best plan of this kind with its price, whether the exchange of places pays or not.
    /// `None` without such a plan: not all ranks share one board, nothing is moved, or data that
    /// can only be copied would have to be combined.
    pub best: Option<Candidate>,
    /// Nanoseconds of every such call for the exchange at its start, and for the wait at its end
    /// until no rank touches the buffers any more.
    pub asking_ns: u64,
    /// Nanoseconds of the best plan through slots.
    pub staged_ns: u64,
}

/// The plans by which a call could run that copies from rank to rank, among those whose algorithm is
/// `able`. None if ranks are not all on one board, the collective combines elements, or every chunk fits
/// into a small slot. Whether copies are faster than slots, the calls of a communicator measure.
///
/// ```
/// use maypole::schedule::{collective::Collective, hosts::Boards};
/// use maypole::tuner::{CostTable, Question, copied_choice};
/// let boards = Boards::new(&[0; 4]);
/// let of = |collective, bytes| {
///     let question = Question { collective, boards: &boards, bytes, crowding: 2, gpus: None };
///     copied_choice(&question, &CostTable::BUILT_IN, |_| true).candidates.first().map(|it| it.plan)
/// };
/// let scatter = Collective::Scatter { root: 0 };
/// assert_eq!(of(scatter, 16 << 20).unwrap().algorithm.name(), "linear");
/// assert_eq!(of(scatter, 1 << 10), None);
/// assert_eq!(of(Collective::AllReduce, 16 << 20), None);
/// ```
pub fn copied_choice(
    question: &Question<'_>,
    table: &CostTable,
    able: impl Fn(Algorithm) -> bool,
) -> ReachingChoice {
    let is_long = |algorithm| longest_chunk(question, algorithm) > SMALL;
    let able = |algorithm| able(algorithm) && is_long(algorithm);
    reaching_choice(question, table, ReachedMemory::Copied, able)
}

/// The plans by which a call could run whose ranks reach one another's memory by `access`, among those
/// whose algorithm is `able`. None if ranks are not all on one board, or elements that can only be copied
/// would have to be combined.
///
/// ```
/// use maypole::schedule::{collective::Collective, hosts::{Boards, ReachedMemory}};
/// use maypole::tuner::{CostTable, Question, reaching_choice};
/// let boards = Boards::new(&[0, 0]);
/// let collective = Collective::AllReduce;
/// let of = |bytes| {
///     let question = Question { collective, boards: &boards, bytes, crowding: 1, gpus: None };
///     reaching_choice(&question, &CostTable::BUILT_IN, ReachedMemory::Registered, |_| true)
/// };
/// assert!(of(8).candidates.is_empty(), "asking takes longer than the call");
/// assert_eq!(of(1 << 20).candidates[0].plan.algorithm.name(), "two-shot");
/// ```
pub fn reaching_choice(
    question: &Question<'_>,
    table: &CostTable,
    access: ReachedMemory,
    able: impl Fn(Algorithm) -> bool,
) -> ReachingChoice {
    let mut choice = ReachingChoice::default();
    let world = question.world();
    let combines = access == ReachedMemory::Copied && question.collective.reduces();
    let is_barrier = question.collective == Collective::Barrier;
    if combines || is_barrier || world < 2 || question.boards.locals(0).len() < world {
        return choice;
    }
    let asking =
        Question { collective: Collective::AllGather, bytes: world * ANNOUNCEMENT, ..*question };
    // Ranks publish the places of their buffers, and at the end one line signals that they are
    // done.
    choice.asking_ns = price_of_best(&asking, table) + table.tiny.alpha.div_ceil(1000);
    choice.staged_ns = price_of_best(question, table);
    let mut left = priced(question, table, access, able);
    choice.best = best(&left).copied();
    let pays = |one: &Candidate| one.predicted_ns + choice.asking_ns < choice.staged_ns;
    left.retain(|one| access == ReachedMemory::Copied || pays(one));
    while let Some(next) = best(&left).copied() {
        left.retain(|one| *one != next);
        choice.candidates.push(next);
    }
    choice
}

/// The price of the best plan through slots.
fn price_of_best(question: &Question<'_>, table: &CostTable) -> u64 {
    let candidates = price::priced(question, None, table);
    best(&candidates).expect("every collective has an algorithm").predicted_ns
}

fn priced(
    question: &Question<'_>,
    table: &CostTable,
    access: ReachedMemory,
    able: impl Fn(Algorithm) -> bool,
) -> Vec<Candidate> {
    let mut priced = Vec::new();
    for algorithm in answers(question).filter(|algorithm| able(*algorithm)) {
        let pricer = Pricer::new(question, algorithm, table).reaching(access);
        let is_cut = longest_chunk(question, algorithm) > WINDOWS[1];
        let windows = &WINDOWS[..1 + usize::from(is_cut)];
        priced.extend(windows.iter().map(|window| {
            let plan = Plan { algorithm, window: *window };
            pricer.candidate(plan)
        }));
    }
    priced
}
