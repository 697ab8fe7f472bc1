//! The order in which the contributions of the ranks are combined: the order that a call requires,
//! and the algorithms that keep it.

use crate::algorithms::Algorithm;
use crate::engine::calls::call::CollectiveCall;
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::verify::Proof;
use crate::topology::DeviceLinks;
use crate::tuner;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RequiredOrder {
    /// Any order and any grouping.
    Any,
    /// The order of the ranks, in any grouping.
    RankOrder,
    /// `((x0 op x1) op x2) op ...`
    LeftToRight,
}

impl RequiredOrder {
    pub(super) fn of(call: CollectiveCall) -> Self {
        if call.deterministic && !call.op.is_exact(call.kind) {
            Self::LeftToRight
        } else if call.op.needs_order() {
            Self::RankOrder
        } else {
            Self::Any
        }
    }

    pub(super) fn is_met_by(self, proof: Proof) -> bool {
        match self {
            Self::Any => true,
            Self::RankOrder => proof.keeps_rank_order,
            Self::LeftToRight => proof.keeps_rank_order && proof.left_to_right,
        }
    }

    /// The end of a sentence about an algorithm that does not meet what `call` requires.
    pub(super) fn objection(self, call: CollectiveCall) -> String {
        match self {
            Self::LeftToRight => {
                "does not combine the ranks one by one from left to right, as a deterministic \
                 call needs"
                    .to_owned()
            }
            _ => format!("does not combine the ranks in their order, as {} needs", call.op),
        }
    }
}

/// Why schedules with this `proof` do not combine the ranks in the order that `call` requires;
/// `None` if they do.
pub(crate) fn objection_to_proof(call: CollectiveCall, proof: Proof) -> Option<String> {
    let required = RequiredOrder::of(call);
    let met = !call.collective.reduces() || required.is_met_by(proof);
    (!met).then(|| required.objection(call))
}

/// The schedules of all ranks, whose buffers are in the memory of GPUs if there are `links`.
///
/// # Panics
/// If `algorithm` does not implement `collective`.
pub(crate) fn schedules_of(
    algorithm: Algorithm,
    collective: Collective,
    boards: &Boards,
    links: Option<&DeviceLinks>,
) -> Vec<Schedule> {
    let schedules = tuner::schedules(algorithm, collective, boards, links);
    schedules.expect("the tuner chooses among the algorithms that implement the collective")
}
