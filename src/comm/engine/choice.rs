//! Which plan a call runs by: the tuner's choice among the algorithms that can do what the call
//! needs.

use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::comm::element::DataType;
use crate::comm::engine::call::{Call, Reduction};
use crate::comm::engine::counts::Count;
use crate::comm::engine::{Engine, Ready};
use crate::comm::error::{Error, Result};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Hosts;
use crate::tuner::{self, CostTable, Explanation, MeasuredTime, Plan, PlanOverride, Question};

/// What a call runs by, besides schedules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    pub(crate) name: &'static str,
    /// Bytes of a window of the longest chunk, at most.
    pub(crate) window: usize,
    pub(crate) fingerprint: u64,
}

impl Communicator {
    /// Names the algorithm of the calls that follow; `None` leaves the choice to the tuner. All
    /// ranks must name the same: the plan is part of what calls are compared by.
    pub fn set_algorithm(&mut self, algorithm: Option<Algorithm>) {
        let wanted = algorithm.map(PlanOverride::from);
        self.engine.change(move |engine| engine.wanted = wanted);
    }

    /// Names algorithm and windows of the calls that follow, as
    /// [`set_algorithm`](Self::set_algorithm) names the algorithm alone: for those who measure.
    pub fn set_plan(&mut self, plan: Option<Plan>) {
        let wanted = plan.map(PlanOverride::from);
        self.engine.change(move |engine| engine.wanted = wanted);
    }

    /// What messages and bytes are taken to cost: rank 0's table, the same on every rank.
    pub fn costs(&self) -> &CostTable {
        &self.surroundings.costs
    }

    /// How many ranks share a core where they are most crowded, rounded up.
    pub fn crowding(&self) -> usize {
        self.surroundings.crowding
    }

    /// Why `collective` of `bytes` bytes in all (of the vector, or of all blocks together) runs as
    /// it does: every candidate with its predicted time, what was refused and why, and the winner.
    ///
    /// From the first time on, this rank's calls are timed (`MAYPOLE_EXPLAIN=1` does so from the
    /// start), so that a later explanation can say how good the prediction was. A local matter:
    /// ranks need not all ask.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp, schedule::collective::Collective};
    /// let explanations = Communicator::run_local(2, |mut comm| {
    ///     let _ = comm.explain(Collective::AllReduce, 4096);
    ///     comm.all_reduce(&mut [1f32; 1024], ReduceOp::Sum).unwrap();
    ///     comm.explain(Collective::AllReduce, 4096)
    /// });
    /// println!("{}", explanations[0]);
    /// assert_eq!(explanations[0].measured.unwrap().runs, 1);
    /// ```
    ///
    /// # Panics
    /// If the collective's root is not one of the ranks.
    pub fn explain(&mut self, collective: Collective, bytes: usize) -> Explanation {
        self.engine.time();
        self.engine.explain(collective, bytes, &self.hosts)
    }

    /// The algorithm that `collective` runs by, for vectors or blocks of `count` elements of
    /// `kind`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if an algorithm was named that does not implement it.
    pub fn algorithm(
        &self,
        collective: Collective,
        count: usize,
        kind: DataType,
    ) -> Result<Algorithm> {
        let (op, count, deterministic) =
            (Reduction::NONE, Count::Even(count), self.engine.deterministic(collective));
        let call = Call { collective, kind, op, count, deterministic, in_place: false };
        Ok(self.engine.plan(call)?.algorithm)
    }
}

impl Engine {
    /// The plan that `call` runs by.
    pub(crate) fn plan(&self, call: Call) -> Result<Plan> {
        let question = self.question(call.collective, self.bytes(call));
        let costs = &self.surroundings.costs;
        let plan =
            tuner::plan(&question, self.asked(call.collective), costs).map_err(|refusal| {
                Error::Unsupported {
                    algorithm: refusal.algorithm,
                    operation: call.collective.name(),
                }
            })?;
        let Some(lack) = self.lack(call, plan.algorithm) else { return Ok(plan) };
        if let Some(PlanOverride { algorithm, .. }) = self.wanted {
            let why = format!("algorithm '{algorithm}' {lack}; leave the choice to 'auto'");
            return Err(self.invalid(call, why));
        }
        let able =
            tuner::plan_of(&question, costs, |algorithm| self.lack(call, algorithm).is_none());
        able.ok_or_else(|| self.invalid(call, format!("every algorithm {lack}")))
    }

    /// Why `algorithm` cannot do `call`, although it implements the collective.
    fn lack(&self, call: Call, algorithm: Algorithm) -> Option<String> {
        if let Some(lack) = self.lack_of_order(call, algorithm) {
            return Some(lack);
        }
        // Blocks of a length for each pair have no length to share a place of scratch by.
        let by_pairs =
            call.collective == Collective::AllToAll && matches!(call.count, Count::Given(_));
        if by_pairs
            && self
                .schedules(call.collective, algorithm)
                .iter()
                .any(|schedule| schedule.scratch > 0)
        {
            return Some(
                "stores blocks of other ranks on their way, which must be equally long for that"
                    .to_owned(),
            );
        }
        None
    }

    /// Why a call of `bytes` bytes in all runs as it does.
    pub(crate) fn explain(
        &self,
        collective: Collective,
        bytes: usize,
        hosts: &Hosts,
    ) -> Explanation {
        let (question, wanted) = (self.question(collective, bytes), self.asked(collective));
        let mut choice = tuner::choose(&question, wanted, &self.surroundings.costs);
        if let Ok(choice) = &mut choice {
            choice.keep_to(|algorithm| self.is_fit(collective, algorithm));
        }
        let alike = |ready: &&Ready| {
            (ready.call.collective, self.bytes(ready.call), ready.wanted)
                == (collective, bytes, self.wanted)
        };
        let measured = self
            .ready
            .iter()
            .filter(alike)
            .map(|ready| ready.measured)
            .fold(MeasuredTime::default(), MeasuredTime::and);
        Explanation::new(
            &question,
            hosts,
            wanted,
            choice,
            Some(measured).filter(|measured| measured.runs > 0),
        )
    }

    fn question(&self, collective: Collective, bytes: usize) -> Question<'_> {
        Question { collective, boards: &self.boards, bytes, crowding: self.surroundings.crowding }
    }

    /// What is asked for by name, or preferred where it fits.
    fn asked(&self, collective: Collective) -> Option<PlanOverride> {
        let fitting = self.preferred.filter(|algorithm| algorithm.supports(collective));
        self.wanted.or(fitting.map(PlanOverride::from))
    }

    fn bytes(&self, call: Call) -> usize {
        call.layout(self.world, 1, &self.given).count() * call.kind.size()
    }
}
