//! The user's settings that decide how calls run.

use crate::algorithms::Algorithm;
use crate::engine::ways::Datapath;
use crate::schedule::collective::Collective;
use crate::tuner::PlanOverride;

/// The default size of a communicator's program cache in bytes: that of about a thousand calls
/// among a few ranks.
const PROGRAM_MEMORY: usize = 8 << 20;

/// The user's settings for later calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallSettings {
    /// The plan of all calls; `None` leaves the choice to the tuner.
    pub(crate) plan: Option<PlanOverride>,
    /// The algorithm of all calls that it supports.
    pub(crate) preferred: Option<Algorithm>,
    /// Every element of a reduction is the plain loop over the ranks.
    pub(crate) deterministic: bool,
    /// All ranks compare their calls before each one.
    pub(crate) checked: bool,
    /// The way in which calls move their bytes, where it is possible; `None` leaves the choice to measurements.
    pub(crate) way: Option<Datapath>,
    /// The size of the program cache in bytes, if the user has set a limit.
    pub(crate) program_limit: Option<usize>,
}

impl CallSettings {
    /// The plan for `collective`: the plan that was named, else the preferred algorithm if it
    /// supports the collective.
    pub(crate) fn plan_for(&self, collective: Collective) -> Option<PlanOverride> {
        let preferred = self.preferred.filter(|algorithm| algorithm.supports(collective));
        self.plan.or(preferred.map(PlanOverride::from))
    }

    /// The size limit of the program cache in bytes.
    pub(crate) fn program_memory(&self) -> usize {
        self.program_limit.unwrap_or(PROGRAM_MEMORY)
    }
}
