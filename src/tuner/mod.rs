//! Chooses the algorithm of each call, and explains the choice.
//!
//! A [`Question`] holds facts that are equal on all ranks. A [`Candidate`] is an algorithm with a
//! length of windows. The tuner prices each candidate: it runs the schedules on simulated clocks
//! ([`simulate`](crate::schedule::simulate)) of the machine that a [`CostTable`] describes, for a call alone
//! and for one more call of a row. The candidate whose worse regret is least wins; of nearly equal
//! ones, the earlier row of the table. Costs are integers, and all ranks use rank 0's table, so all
//! ranks choose alike on any hardware.
//!
//! As a rule of thumb, small vectors go by the algorithm with the fewest hops, because every hop is
//! a wait (and a context switch where ranks outnumber cores). Large vectors go by the one that
//! moves the fewest bytes. Across many hosts, neighbours in a ring are faster than all ranks
//! sending to all others concurrently.

mod candidates;
mod costs;
mod explanation;
mod gpus;
mod network;
mod pairs;
mod price;
mod registered;
mod rounding;
pub mod saved;
mod shape;

use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;

pub use candidates::{Candidate, CandidateVerdict, rows};
pub use costs::{CostTable, Costs, TableError};
pub use explanation::{DevicePrices, Explanation};
pub use gpus::{DeviceQuestion, schedules};
pub use network::{Network, NoNetwork};
pub use pairs::{PairGroup, pair_groups};
pub use price::price_of_schedules;
pub use registered::{ReachingChoice, copied_choice, reaching_choice};
pub use rounding::priced_bytes;

/// Most bytes of a window of a user's schedules: those of a slot of a board.
pub const OWN_WINDOW: usize = 32 << 10;

/// How a call is run; equal on all ranks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Plan {
    /// The algorithm that makes the schedules.
    pub algorithm: Algorithm,
    /// Bytes of a window of the longest chunk, at most.
    pub window: usize,
}

/// An algorithm that overrules the tuner's choice.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PlanOverride {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of a window; `None` leaves the length to the tuner.
    pub window: Option<usize>,
}

impl From<Algorithm> for PlanOverride {
    fn from(algorithm: Algorithm) -> Self {
        Self { algorithm, window: None }
    }
}

impl From<Plan> for PlanOverride {
    fn from(plan: Plan) -> Self {
        Self { algorithm: plan.algorithm, window: Some(plan.window) }
    }
}

/// The facts that a choice depends on: only those that are equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The collective of the call.
    pub collective: Collective,
    /// The boards of the ranks; streams join ranks of different boards.
    pub boards: &'a Boards,
    /// Bytes of the whole: of the vector, or of all blocks together.
    pub bytes: usize,
    /// The most ranks that share a core, rounded up; at least 1.
    pub crowding: usize,
    /// The GPUs of the ranks, if the buffers are in their memory.
    pub gpus: Option<DeviceQuestion<'a>>,
}

impl Question<'_> {
    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.boards.world()
    }
}

/// A choice, and the candidates that it was made from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The chosen plan.
    pub plan: Plan,
    /// Every candidate with its price, in the order of the table.
    pub candidates: Vec<Candidate>,
}

impl Choice {
    /// Chooses again among the candidates whose algorithm is `able`, and marks the others. Leaves
    /// the choice as it is if no algorithm is able.
    pub fn keep_to(&mut self, able: impl Fn(Algorithm) -> bool) {
        let (fit, unfit): (Vec<_>, Vec<_>) =
            self.candidates.iter_mut().partition(|one| able(one.plan.algorithm));
        unfit.into_iter().for_each(|one| one.verdict = CandidateVerdict::OtherOrder);
        let stays = fit.iter().any(|one| one.plan == self.plan);
        let fit: Vec<Candidate> = fit.into_iter().map(|one| *one).collect();
        if let Some(best) = best(&fit).filter(|_| !stays) {
            self.take(best.plan);
        }
    }

    /// Takes `plan` instead of the plan so far.
    fn take(&mut self, plan: Plan) {
        self.plan = plan;
        for one in &mut self.candidates {
            one.verdict = match one.verdict {
                _ if one.plan == plan => CandidateVerdict::Chosen,
                CandidateVerdict::Chosen => CandidateVerdict::Slower,
                other => other,
            };
        }
    }
}

#[cfg(feature = "cuda")]
impl Choice {
    /// Marks `algorithm` as the one by which the call runs, whatever plan is the best.
    pub(crate) fn run_as(&mut self, algorithm: Algorithm) {
        let form = self.candidates.iter().find(|one| one.plan.algorithm == algorithm);
        if let Some(form) = form.filter(|_| self.plan.algorithm != algorithm) {
            self.take(form.plan);
        }
    }
}

/// The requested algorithm does not implement the collective.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "'{algorithm}' does not implement {}; these do: {}",
    collective.name(),
    implementers(*collective)
)]
pub struct UnsupportedAlgorithm {
    /// The requested algorithm.
    pub algorithm: Algorithm,
    /// The collective that it does not implement.
    pub collective: Collective,
}

/// Names of the algorithms that implement `collective`, separated by commas.
fn implementers(collective: Collective) -> String {
    let all = Algorithm::named().filter(|algorithm| algorithm.supports(collective));
    all.map(Algorithm::name).collect::<Vec<_>>().join(", ")
}

/// The plan for `question`, and every candidate with its price; `wanted` overrules the price.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::{collective::Collective, hosts::Boards};
/// use maypole::tuner::{CostTable, Question, choose};
/// let boards = Boards::new(&[0, 0]);
/// let collective = Collective::AllReduce;
/// let question = Question { collective, boards: &boards, bytes: 8, crowding: 1, gpus: None };
/// let choice = choose(&question, None, &CostTable::BUILT_IN).unwrap();
/// assert_eq!(choice.plan.algorithm, Algorithm::OneShot);
/// ```
///
/// # Errors
/// [`UnsupportedAlgorithm`] if the requested algorithm does not implement the collective.
pub fn choose(
    question: &Question<'_>,
    wanted: Option<PlanOverride>,
    table: &CostTable,
) -> Result<Choice, UnsupportedAlgorithm> {
    let wanted = wanted.map(|wanted| answerable(question.collective, wanted)).transpose()?;
    let mut candidates = price::priced(question, None, table);
    let plan = settle(&candidates, wanted);
    if candidates.iter().all(|one| one.plan != plan) {
        candidates.push(price::Pricer::new(question, plan.algorithm, table).candidate(plan));
    }
    let is_asked = |one: &Candidate| wanted.is_none_or(|it| it.algorithm == one.plan.algorithm);
    for unasked in candidates.iter_mut().filter(|one| !is_asked(one)) {
        unasked.verdict = CandidateVerdict::NotAsked;
    }
    let mut choice = Choice { plan, candidates };
    choice.take(plan);
    Ok(choice)
}

/// Returns the plan of [`choose`] alone, and prices no more candidates than necessary.
///
/// # Errors
/// As [`choose`].
pub fn plan(
    question: &Question<'_>,
    wanted: Option<PlanOverride>,
    table: &CostTable,
) -> Result<Plan, UnsupportedAlgorithm> {
    let wanted = wanted.map(|wanted| answerable(question.collective, wanted)).transpose()?;
    if let Some(PlanOverride { algorithm, window: Some(window) }) = wanted {
        return Ok(Plan { algorithm, window });
    }
    let algorithm = wanted.map(|wanted| wanted.algorithm);
    let rows = rows(question, algorithm);
    match rows[..] {
        [only] => Ok(only),
        _ => Ok(settle(&price::priced(question, algorithm, table), wanted)),
    }
}

/// The best plan whose algorithm is `able`; `None` if none is.
pub fn plan_of(
    question: &Question<'_>,
    table: &CostTable,
    able: impl Fn(Algorithm) -> bool,
) -> Option<Plan> {
    let answers = candidates::answers(question).filter(|it| able(*it));
    let rows: Vec<Candidate> =
        answers.flat_map(|it| price::priced(question, Some(it), table)).collect();
    best(&rows).map(|one| one.plan)
}

/// The candidate whose worse [regret](regrets) is least, or the first whose is at most a sixth ([`CLOSE`]) more:
/// prices are not more exact than that, and the algorithms with the fewest steps come first.
fn best(candidates: &[Candidate]) -> Option<&Candidate> {
    let regrets = regrets(candidates);
    let least = regrets.iter().min()?;
    let at = regrets.iter().position(|one| *one <= least.saturating_add(least / CLOSE))?;
    Some(&candidates[at])
}

/// The worse of each candidate's two regrets, in 1024ths: the time of one call over the least such time, and that
/// of a row of [`ROW`] calls over the least. The cost of one more call alone would choose, for
/// example, a ring for a broadcast of a few bytes among many hosts: in a row its ranks run ahead,
/// and alone it takes a hop a rank.
fn regrets(candidates: &[Candidate]) -> Vec<u64> {
    let one = candidates.iter().map(|it| u128::from(it.alone_ns));
    let row = candidates
        .iter()
        .map(|it| u128::from(it.alone_ns) + (ROW - 1) * u128::from(it.predicted_ns));
    let over = |price: u128, least: Option<u128>| price * 1024 / least.unwrap_or(1).max(1);
    let least = [one.clone().min(), row.clone().min()];
    let worse = one.zip(row).map(|(one, row)| over(one, least[0]).max(over(row, least[1])));
    worse.map(|it| u64::try_from(it).unwrap_or(u64::MAX)).collect()
}

/// Calls of a row between two points at which a program waits for all ranks.
const ROW: u128 = 16;

/// Regrets that differ by at most a fraction 1 / `CLOSE` count as equal.
const CLOSE: u64 = 6;

fn answerable(
    collective: Collective,
    wanted: PlanOverride,
) -> Result<PlanOverride, UnsupportedAlgorithm> {
    match wanted.algorithm.supports(collective) {
        true => Ok(wanted),
        false => Err(UnsupportedAlgorithm { algorithm: wanted.algorithm, collective }),
    }
}

/// The best candidate of the requested algorithm, or of all.
fn settle(candidates: &[Candidate], wanted: Option<PlanOverride>) -> Plan {
    if let Some(PlanOverride { algorithm, window: Some(window) }) = wanted {
        return Plan { algorithm, window };
    }
    let asked = candidates
        .iter()
        .filter(|one| wanted.is_none_or(|wanted| wanted.algorithm == one.plan.algorithm));
    let asked: Vec<Candidate> = asked.copied().collect();
    best(&asked).expect("every collective has an algorithm").plan
}
