//! In which order the ranks are combined: what a call demands, and which algorithms give it.

use super::Communicator;
use super::call::Call;
use super::engine::Engine;
use crate::algorithms::Algorithm;
use crate::collective::Collective;
use crate::error::Result;
use crate::schedule::Placement;
use crate::tuner::{Plan, Question, choose};
use crate::verify::{Proof, verify};
use std::fmt;

/// How the contributions of the ranks must be combined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Demand {
    /// In any order, grouped in any way.
    Nothing,
    /// In the order of the ranks, grouped in any way.
    RankOrder,
    /// `((x0 op x1) op x2) op ...`
    LeftToRight,
}

impl Demand {
    fn of(call: Call) -> Self {
        match call.deterministic && !call.op.is_exact(call.kind) {
            true => Self::LeftToRight,
            false if call.op.needs_order() => Self::RankOrder,
            false => Self::Nothing,
        }
    }

    fn is_met_by(self, proof: Proof) -> bool {
        match self {
            Self::Nothing => true,
            Self::RankOrder => proof.keeps_rank_order,
            Self::LeftToRight => proof.keeps_rank_order && proof.left_to_right,
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "combine the ranks",
            Self::RankOrder => "combine the ranks in their order",
            Self::LeftToRight => "combine the ranks one by one from left to right",
        })
    }
}

impl Communicator {
    /// Says whether the calls that follow are *deterministic*: each element of a reduction is
    /// `((x0 op x1) op x2) op ... x(n-1)`, the plain loop over the ranks, whatever the number of elements, the
    /// transport, the hosts and the version. All ranks must say the same: it is part of what calls are compared by. At
    /// first `MAYPOLE_DETERMINISTIC`, or false. Groups split off later inherit it.
    ///
    /// Without it, results are the same on every run and on all ranks too, but depend on which algorithm the tuner
    /// chooses: see [the contract](crate::element#determinism), which also says what this costs.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(4, |mut comm| {
    ///     comm.set_deterministic(true);
    ///     let mut x = [[1e8f32, 1.0, -1e8, 1.0][comm.rank()]; 1000];
    ///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    ///     x[0]
    /// });
    /// assert_eq!(sums, [((1e8 + 1.0) + -1e8) + 1.0; 4]);
    /// ```
    pub fn set_deterministic(&mut self, deterministic: bool) {
        self.engine.deterministic = deterministic;
    }

    /// True if reductions are the plain loop over the ranks.
    pub fn is_deterministic(&self) -> bool {
        self.engine.deterministic
    }
}

impl Engine {
    /// What a call of `collective` says of the mode; what does not combine is the same in both.
    #[inline]
    pub(super) fn deterministic(&self, collective: Collective) -> bool {
        self.deterministic && collective.reduces()
    }

    /// `plan`, the first choice for `call`, if it combines as the call demands; else the best that does.
    pub(super) fn ordered(&self, call: Call, question: Question, plan: Plan) -> Result<Plan> {
        let demand = Demand::of(call);
        let op = if demand == Demand::LeftToRight { "a deterministic call".to_owned() } else { call.op.to_string() };
        if self.meets(call.collective, plan.algorithm, demand) {
            return Ok(plan);
        }
        if let Some(wanted) = self.wanted {
            let why = format!("algorithm '{wanted}' does not {demand}, as {op} needs; leave the choice to 'auto'");
            return Err(self.invalid(call, why));
        }
        // What was asked for by name wherever it fits does not fit. Of those that keep an order, the last of the table
        // are the direct ones, which send the fewest bytes.
        let mut plans = std::iter::once(None)
            .chain(Algorithm::ALL.into_iter().rev().map(Some))
            .filter_map(|algorithm| choose(question, algorithm).ok());
        let plan = plans.find(|plan| self.meets(call.collective, plan.algorithm, demand));
        plan.ok_or_else(|| self.invalid(call, format!("no algorithm can {demand}, as {op} needs")))
    }

    /// Derived from the schedules of `algorithm`, not declared.
    fn meets(&self, collective: Collective, algorithm: Algorithm, demand: Demand) -> bool {
        if demand == Demand::Nothing || !collective.reduces() {
            return true;
        }
        let proof = verify(collective, &self.schedules(collective, algorithm), Placement::Apart);
        proof.is_ok_and(|proof| demand.is_met_by(proof))
    }
}
