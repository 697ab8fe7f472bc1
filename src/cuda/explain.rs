//! Why calls on GPUs run as they do: the candidates with their prices.

use super::comm::Comm;
use super::plan::{COSTS, UNIT};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::tuner::{Explanation, PlanOverride, Question, choose};

/// Why `collective` of `bytes` bytes in all (of the vector, or of all blocks together) among `world`
/// ranks on GPUs that reach one another's memory runs as it does: every candidate with its predicted
/// time. `wanted` is the algorithm that is used instead of the tuner's choice. Needs no GPU.
///
/// The prices order the candidates. They are those of messages between kernels of one H100, and what
/// joins GPUs does not change them: no two GPUs have been measured. Where ranks share a GPU, long calls
/// take longer than predicted, because all ranks share its memory: 908 us for an all-reduce of 128 MiB
/// among 4 ranks, where 176 us are predicted.
///
/// ```
/// use maypole::schedule::collective::Collective;
/// let of = |bytes| maypole::cuda::explain(Collective::AllReduce, bytes, 4, None);
/// assert_eq!(of(8).chosen().unwrap().plan.algorithm.name(), "one-shot");
/// assert!(of(1 << 30).to_string().contains("4 ranks, on GPUs"));
/// ```
///
/// # Panics
/// If `world` is zero.
pub fn explain(
    collective: Collective,
    bytes: usize,
    world: usize,
    wanted: Option<PlanOverride>,
) -> Explanation {
    assert!(world > 0, "a world has at least one rank");
    let boards = Boards::new(&vec![0; world]);
    let question =
        Question { collective, boards: &boards, bytes: bytes.div_ceil(UNIT), crowding: 1 };
    let choice = choose(&question, wanted, &COSTS);
    let mut explanation = Explanation::on_gpus(&question, wanted, choice);
    explanation.bytes = bytes;
    if let Ok(choice) = &mut explanation.choice {
        choice.plan.window = choice.plan.window.saturating_mul(UNIT);
        for candidate in &mut choice.candidates {
            candidate.plan.window = candidate.plan.window.saturating_mul(UNIT);
        }
    }
    explanation
}

impl Comm {
    /// Why a call runs as it does: as [`explain`], with this group's choices, or why calls go
    /// [through the host](Self::through_host) and what is chosen there. Not collective.
    pub fn explain(&self, collective: Collective, bytes: usize) -> Explanation {
        let mut rank = self.lock();
        let Some(why) = rank.host_reason.clone() else {
            let engine = rank.comm.engine.get();
            let wanted = engine.wanted_on_device(collective);
            let mut explanation = explain(collective, bytes, self.world_size(), wanted);
            if let Ok(choice) = &mut explanation.choice {
                choice.keep_to(engine.keeps_order_on_device(collective, &rank.machine));
            }
            return explanation;
        };
        let mut explanation = rank.comm.explain(collective, bytes);
        explanation.refuse_gpus(&why);
        explanation
    }
}
