//! The plan of a call: the tuner's choice among the algorithms that can run the call.

mod plans;

use crate::algorithms::Algorithm;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::{CallCount, NamedCounts};
use crate::engine::calls::order::{RequiredOrder, schedules_of};
use crate::engine::conditions::RunConditions;
use crate::engine::settings::CallSettings;
use crate::error::{Error, Result};
use crate::schedule::Placement;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, Hosts, ReachedMemory};
use crate::schedule::verify::verify;
use crate::topology::DeviceLinks;
use crate::tuner::{
    self, DeviceQuestion, Explanation, Plan, Question, ReachingChoice, priced_bytes,
};
pub(crate) use plans::{CallKind, ChosenPlans};

/// Everything that the choice of a plan depends on, except the call.
#[derive(Clone, Copy)]
pub(crate) struct PlanChooser<'a> {
    pub(crate) rank: usize,
    pub(crate) boards: &'a Boards,
    pub(crate) conditions: &'a RunConditions,
    pub(crate) settings: &'a CallSettings,
    pub(crate) counts: &'a NamedCounts,
    pub(crate) chosen: &'a ChosenPlans,
    /// The GPUs that the buffers are on, if they are. Windows are priced as long as a board's slots, so
    /// that a window of a mailbox, which is longer, has as many units as such a slot has bytes.
    pub(crate) gpus: Option<DeviceQuestion<'a>>,
}

impl<'a> PlanChooser<'a> {
    pub(crate) fn plan(&self, call: CollectiveCall) -> Result<Plan> {
        let costs = &self.conditions.prices();
        let wanted = self.settings.plan_for(call.collective);
        let choose = |bytes| tuner::plan(&self.question(call.collective, bytes), wanted, costs);
        let bytes = self.bytes(call).div_ceil(self.unit());
        let plan = match (self.gpus, priced_bytes(bytes)) {
            (None, priced) => {
                let key = (call.collective, priced, wanted);
                self.chosen.plans.borrow_mut().try_get_or_insert(key, || choose(priced)).copied()
            }
            _ => choose(bytes),
        };
        let plan = plan.map_err(|refusal| Error::Unsupported {
            algorithm: refusal.algorithm,
            operation: call.collective.name(),
        })?;
        let Some(objection) = self.objection(call, plan.algorithm) else { return Ok(plan) };
        if let Some(named) = self.settings.plan {
            let algorithm = named.algorithm;
            let why = format!("algorithm '{algorithm}' {objection}; leave the choice to 'auto'");
            return Err(call.invalid(self.rank, why));
        }
        let able = |algorithm| self.objection(call, algorithm).is_none();
        tuner::plan_of(&self.question(call.collective, bytes), costs, able)
            .ok_or_else(|| call.invalid(self.rank, format!("every algorithm {objection}")))
    }

    /// The plans by which `call` could run that reaches other ranks' buffers by `access`.
    pub(crate) fn reaching(&self, call: CollectiveCall, access: ReachedMemory) -> ReachingChoice {
        let kind @ (_, bytes, _, wanted) = self.kind(call);
        let question = self.question(call.collective, bytes);
        let able = |algorithm| {
            wanted.is_none_or(|wanted| wanted == algorithm)
                && self.objection(call, algorithm).is_none()
        };
        let costs = &self.conditions.prices();
        let choose = || tuner::reaching_choice(&question, costs, access, able);
        match access {
            ReachedMemory::Registered => choose(),
            // Nothing is combined, so any order is allowed.
            ReachedMemory::Copied => {
                self.chosen.copied.borrow_mut().get_or_insert(kind, choose).clone()
            }
        }
    }

    /// The kind of `call` where ranks may copy.
    pub(crate) fn kind(&self, call: CollectiveCall) -> CallKind {
        let wanted = self.settings.plan_for(call.collective).map(|plan| plan.algorithm);
        let has_counts = matches!(call.count, CallCount::Given(_));
        (call.collective, priced_bytes(self.bytes(call)), has_counts, wanted)
    }

    /// Why `algorithm`, which implements the collective, cannot run `call`; `None` if it can.
    fn objection(&self, call: CollectiveCall, algorithm: Algorithm) -> Option<String> {
        let required = RequiredOrder::of(call);
        if !self.meets(required, call.collective, algorithm) {
            return Some(required.objection(call));
        }
        // Scratch chunks are as long as one block, but here blocks have a length for each pair.
        let has_pair_counts =
            call.collective == Collective::AllToAll && matches!(call.count, CallCount::Given(_));
        let stores_blocks = || {
            let schedules = schedules_of(algorithm, call.collective, self.boards, self.links());
            schedules.iter().any(|schedule| schedule.scratch > 0)
        };
        (has_pair_counts && stores_blocks()).then(|| {
            "forwards blocks of other ranks, which must be equally long for that".to_owned()
        })
    }

    /// Explains the plan of a call of `bytes` bytes in all. `copies` is the reason why ranks cannot copy from one another, if there is one.
    pub(crate) fn explain(
        &self,
        collective: Collective,
        bytes: usize,
        hosts: &Hosts,
        copies: Option<&str>,
    ) -> Explanation {
        let question = self.question(collective, priced_bytes(bytes));
        let wanted = self.settings.plan_for(collective);
        let table = &self.conditions.prices();
        let mut choice = tuner::choose(&question, wanted, table);
        if let Ok(choice) = &mut choice {
            choice.keep_to(|algorithm| self.keeps_order(collective, algorithm));
        }
        let able = |algorithm| {
            wanted.is_none_or(|wanted| wanted.algorithm == algorithm)
                && self.keeps_order(collective, algorithm)
        };
        let registered = tuner::reaching_choice(&question, table, ReachedMemory::Registered, able);
        let copied = tuner::copied_choice(&question, table, able);
        let links = &self.conditions.links;
        Explanation {
            bytes,
            registered: Some(registered),
            copied: Some(copied),
            copies_refused: copies.map(str::to_owned),
            ..Explanation::new(&question, hosts, links, wanted, choice)
        }
    }

    /// True if `algorithm` combines the ranks in the order that the settings need.
    pub(crate) fn keeps_order(&self, collective: Collective, algorithm: Algorithm) -> bool {
        let any_order = !self.settings.deterministic;
        any_order || self.meets(RequiredOrder::LeftToRight, collective, algorithm)
    }

    /// True if `algorithm` combines the ranks of `collective` in the `required` order. Derived from its
    /// schedules, not declared.
    fn meets(&self, required: RequiredOrder, collective: Collective, algorithm: Algorithm) -> bool {
        if required == RequiredOrder::Any || !collective.reduces() {
            return true;
        }
        let schedules = schedules_of(algorithm, collective, self.boards, self.links());
        let proof = verify(collective, &schedules, Placement::Apart);
        proof.is_ok_and(|proof| required.is_met_by(proof))
    }

    fn question(&self, collective: Collective, bytes: usize) -> Question<'a> {
        let crowding = self.conditions.crowding;
        Question { collective, boards: self.boards, bytes, crowding, gpus: self.gpus }
    }

    fn unit(&self) -> usize {
        self.gpus.map_or(1, |gpus| gpus.unit)
    }

    fn links(&self) -> Option<&'a DeviceLinks> {
        self.gpus.map(|gpus| gpus.links)
    }

    /// The bytes of the vector, or of all blocks together.
    fn bytes(&self, call: CollectiveCall) -> usize {
        call.layout(self.boards.world(), 1, self.counts).count() * call.element_bytes()
    }
}
