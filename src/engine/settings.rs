//! What the user has asked for, as far as it decides how calls run.

use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::tuner::PlanOverride;

/// Most bytes of the programs that a communicator keeps, unless the user says otherwise: those of
/// about a thousand calls among a few ranks.
const PROGRAM_MEMORY: usize = 8 << 20;

/// The user's settings for the calls that follow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallSettings {
    plan: Option<PlanOverride>,
    preferred: Option<Algorithm>,
    deterministic: bool,
    checked: bool,
    memory_limit: Option<usize>,
    program_memory: Option<usize>,
}

impl CallSettings {
    /// The plan that was named for all calls.
    #[inline(always)]
    pub(crate) fn plan(&self) -> Option<PlanOverride> {
        self.plan
    }

    /// Names the plan of all calls, or leaves the choice to the tuner. Returns the plan before.
    pub(crate) fn set_plan(&mut self, plan: Option<PlanOverride>) -> Option<PlanOverride> {
        std::mem::replace(&mut self.plan, plan)
    }

    /// Names the algorithm of all calls that it supports.
    pub(crate) fn prefer(&mut self, algorithm: Option<Algorithm>) {
        self.preferred = algorithm;
    }

    /// The plan for `collective`: the plan that was named, else the preferred algorithm if it
    /// supports the collective.
    pub(crate) fn plan_for(&self, collective: Collective) -> Option<PlanOverride> {
        let preferred = self.preferred.filter(|algorithm| algorithm.supports(collective));
        self.plan.or(preferred.map(PlanOverride::from))
    }

    /// True if every element of a reduction is the plain loop over the ranks.
    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// True if a call of `collective` must be deterministic. False for collectives that combine
    /// nothing: their results are the same in both modes.
    #[inline]
    pub(crate) fn is_deterministic_for(&self, collective: Collective) -> bool {
        self.deterministic && collective.reduces()
    }

    pub(crate) fn set_deterministic(&mut self, deterministic: bool) {
        self.deterministic = deterministic;
    }

    /// True if all ranks compare their calls before each one.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    pub(crate) fn set_checked(&mut self, checked: bool) {
        self.checked = checked;
    }

    /// The most bytes of shared memory that this rank may use, if there is a limit.
    pub(crate) fn memory_limit(&self) -> Option<usize> {
        self.memory_limit
    }

    pub(crate) fn limit_memory(&mut self, bytes: Option<usize>) {
        self.memory_limit = bytes;
    }

    /// The most bytes of programs that are kept for calls to come.
    pub(crate) fn program_memory(&self) -> usize {
        self.program_memory.unwrap_or(PROGRAM_MEMORY)
    }

    pub(crate) fn limit_programs(&mut self, bytes: Option<usize>) {
        self.program_memory = bytes;
    }
}
