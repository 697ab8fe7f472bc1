//! Calls on registered memory: which plans they could run by, and what asking all ranks costs.

use super::candidates::{answers, longest_chunk};
use super::price::Pricer;
use super::{Candidate, CostTable, Plan, Question, best, choose};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;

/// Bytes that each rank tells all others before such a call.
pub(crate) const ANNOUNCEMENT: usize = 48;
/// Lengths of windows. There are no slots to fit into: a whole chunk needs the fewest messages, and
/// windows let ranks that relay overlap.
const WINDOWS: [usize; 2] = [usize::MAX, 128 << 10];

/// What a call would cost if all ranks had registered its buffers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RegisteredChoice {
    /// Plans with their prices, best first. Those that are not cheaper than the best plan for private
    /// memory are left out: asking would not pay.
    pub candidates: Vec<Candidate>,
    /// The best plan for registered memory with its price, whether asking pays or not. `None` if no
    /// plan can run on registered memory: not all ranks share one board, or nothing is moved.
    pub best: Option<Candidate>,
    /// Nanoseconds that asking takes, which every such call pays.
    pub asking_ns: u64,
    /// Nanoseconds of the best plan for private memory.
    pub private_ns: u64,
}

/// The plans by which calls on registered memory could run, among those whose algorithm is `able`.
/// None if ranks are not all on one board.
///
/// ```
/// use maypole::schedule::{collective::Collective, hosts::Boards};
/// use maypole::tuner::{CostTable, Question, registered_choice};
/// let boards = Boards::new(&[0, 0]);
/// let collective = Collective::AllReduce;
/// let of = |bytes| {
///     let question = Question { collective, boards: &boards, bytes, crowding: 1 };
///     registered_choice(&question, &CostTable::BUILT_IN, |_| true)
/// };
/// assert!(of(8).candidates.is_empty(), "asking takes longer than the call");
/// assert_eq!(of(1 << 20).candidates[0].plan.algorithm.name(), "two-shot");
/// ```
pub fn registered_choice(
    question: &Question<'_>,
    table: &CostTable,
    able: impl Fn(Algorithm) -> bool,
) -> RegisteredChoice {
    let mut choice = RegisteredChoice::default();
    let world = question.world();
    if question.collective == Collective::Barrier || world < 2 || !is_one_board(question.boards) {
        return choice;
    }
    let asking =
        Question { collective: Collective::AllGather, bytes: world * ANNOUNCEMENT, ..*question };
    choice.asking_ns = price_of_best(&asking, table);
    choice.private_ns = price_of_best(question, table);
    let mut left = priced(question, table, able);
    choice.best = best(&left).copied();
    let pays = |one: &Candidate| one.predicted_ns + choice.asking_ns < choice.private_ns;
    left.retain(pays);
    while let Some(next) = best(&left).copied() {
        left.retain(|one| *one != next);
        choice.candidates.push(next);
    }
    choice
}

fn price_of_best(question: &Question<'_>, table: &CostTable) -> u64 {
    let choice = choose(question, None, table).expect("every collective has an algorithm");
    let chosen = choice.candidates.iter().find(|one| one.plan == choice.plan);
    chosen.expect("the choice is a candidate").predicted_ns
}

fn priced(
    question: &Question<'_>,
    table: &CostTable,
    able: impl Fn(Algorithm) -> bool,
) -> Vec<Candidate> {
    let mut priced = Vec::new();
    for algorithm in answers(question).filter(|algorithm| able(*algorithm)) {
        let pricer = Pricer::new(question, algorithm, table).registered();
        let is_cut = longest_chunk(question, algorithm) > WINDOWS[1];
        let windows = &WINDOWS[..1 + usize::from(is_cut)];
        priced.extend(windows.iter().map(|window| {
            let plan = Plan { algorithm, window: *window };
            pricer.candidate(plan)
        }));
    }
    priced
}

/// True if all ranks share one board.
fn is_one_board(boards: &Boards) -> bool {
    boards.locals(0).len() == boards.world()
}
