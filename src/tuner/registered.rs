//! Calls that reach the buffers of other ranks, registered or copied: which plans they could run by,
//! and what asking all ranks costs.

use super::candidates::{answers, longest_chunk};
use super::price::Pricer;
use super::{Candidate, CostTable, Plan, Question, best, choose};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, ReachedMemory};

/// Bytes that each rank tells all others before such a call.
pub(crate) const ANNOUNCEMENT: usize = 48;
/// Lengths of windows. There are no slots to fit into: a whole chunk needs the fewest messages, and
/// windows let ranks that relay overlap.
const WINDOWS: [usize; 2] = [usize::MAX, 128 << 10];
/// The factor by which copies have to be cheaper than slots, in the model, to be chosen before they were tried.
const MARGIN: (u128, u128) = (12, 10);
/// On some machines calls through slots take so many times as long as their price.
const ERROR: u64 = 4;

/// What a call would cost if ranks reached one another's buffers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReachingChoice {
    /// Plans with their prices, best first. Those that are not cheaper than the best plan through
    /// slots are left out: asking would not pay.
    pub candidates: Vec<Candidate>,
    /// The best plan of this kind with its price, whether asking pays or not. `None` if there is no
    /// such plan: not all ranks share one board, nothing is moved, or what can only be copied would
    /// have to be combined.
    pub best: Option<Candidate>,
    /// Nanoseconds that every such call pays for asking at its start, and for waiting at its end until
    /// nobody touches the buffers any more.
    pub asking_ns: u64,
    /// Nanoseconds of the best plan through slots.
    pub staged_ns: u64,
}

impl ReachingChoice {
    /// The plans that are worth a trial: those that are cheaper, or the best one if it is not dearer than
    /// prices err.
    pub(crate) fn worth_trying(&self) -> &[Candidate] {
        let is_worth =
            |best: &&Candidate| best.predicted_ns + self.asking_ns < ERROR * self.staged_ns;
        match self.best.as_ref().filter(is_worth) {
            Some(best) if self.candidates.is_empty() => std::slice::from_ref(best),
            _ => &self.candidates,
        }
    }
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
///     let question = Question { collective, boards: &boards, bytes, crowding: 1, gpus: None };
///     registered_choice(&question, &CostTable::BUILT_IN, |_| true)
/// };
/// assert!(of(8).candidates.is_empty(), "asking takes longer than the call");
/// assert_eq!(of(1 << 20).candidates[0].plan.algorithm.name(), "two-shot");
/// ```
pub fn registered_choice(
    question: &Question<'_>,
    table: &CostTable,
    able: impl Fn(Algorithm) -> bool,
) -> ReachingChoice {
    reaching_choice(question, table, ReachedMemory::Registered, able)
}

/// The plans by which a call could run that copies from rank to rank, among those whose algorithm is
/// `able`. None if ranks are not all on one board, the collective combines elements, or the call is
/// short.
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
    match question.collective.reduces() || table.is_short_to_copy(question.bytes) {
        true => ReachingChoice::default(),
        false => reaching_choice(question, table, ReachedMemory::Copied, able),
    }
}

/// As [`registered_choice`] or [`copied_choice`], by `access`.
fn reaching_choice(
    question: &Question<'_>,
    table: &CostTable,
    access: ReachedMemory,
    able: impl Fn(Algorithm) -> bool,
) -> ReachingChoice {
    let mut choice = ReachingChoice::default();
    let world = question.world();
    if question.collective == Collective::Barrier || world < 2 || !is_one_board(question.boards) {
        return choice;
    }
    let asking =
        Question { collective: Collective::AllGather, bytes: world * ANNOUNCEMENT, ..*question };
    // Ranks tell where their buffers lie, and at the end one line says that they are done.
    choice.asking_ns =
        price_of_best(&asking, table, ReachedMemory::Registered) + table.tiny.alpha.div_ceil(1000);
    choice.staged_ns = price_of_best(question, table, access);
    let mut left = priced(question, table, access, able);
    choice.best = best(&left).copied();
    let (more, of) = match access {
        ReachedMemory::Registered => (1, 1),
        ReachedMemory::Copied => MARGIN,
    };
    let pays = |one: &Candidate| {
        let predicted = u128::from(one.predicted_ns) * more / of;
        predicted + u128::from(choice.asking_ns) < u128::from(choice.staged_ns)
    };
    left.retain(pays);
    while let Some(next) = best(&left).copied() {
        left.retain(|one| *one != next);
        choice.candidates.push(next);
    }
    choice
}

/// The price of the best plan through slots, as it is compared with plans by `access`.
fn price_of_best(question: &Question<'_>, table: &CostTable, access: ReachedMemory) -> u64 {
    let choice = choose(question, None, table).expect("every collective has an algorithm");
    let chosen = choice.candidates.iter().find(|one| one.plan == choice.plan);
    let chosen = chosen.expect("the choice is a candidate");
    match access {
        ReachedMemory::Registered => chosen.predicted_ns,
        ReachedMemory::Copied => {
            let pricer = Pricer::new(question, choice.plan.algorithm, table).with_own_part();
            pricer.candidate(choice.plan).predicted_ns
        }
    }
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

/// True if all ranks share one board.
fn is_one_board(boards: &Boards) -> bool {
    boards.locals(0).len() == boards.world()
}
