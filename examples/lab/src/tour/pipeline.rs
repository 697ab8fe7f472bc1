//! The tour's check of a pipeline: whether passes ran in the order of the plan, and how long ranks
//! waited for one another.
//!
//! What it does: ranks share cores here, so wall time would also count waiting for a core. Instead
//! the passes, in the order in which they ran, are replayed with the measured processor time of
//! each. Passes of a stage in one direction are alike, so the least time that one of them took counts
//! for all: other programs slow some passes down, and speed none up. Beside it stands the plan, replayed with as many multiplications as the layers of each
//! stage need: the embedding multiplies nothing, and the last stage has the head.
//!
//! What is sharded, which collective runs where: nothing here.

use crate::compare::median;
use crate::replay::{TraceFigures, simulate};
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use maypole_trainer::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::train::parallelism::Parallelism;
use std::collections::HashMap;

/// The greatest difference of the measured bubble from theory, as a share of the time. Layers are
/// more than their multiplications.
const NEAR: f64 = 0.12;

/// The pipeline of rank 0 in a run of the tour.
#[derive(Clone, Debug, Default)]
pub(crate) struct PipelineCheck {
    /// The share of time in which ranks wait, from the passes that ran.
    pub(crate) bubble: f64,
    /// The same from the plan.
    pub(crate) theory: f64,
    /// True if every rank ran its passes in the order of the plan, in every step.
    pub(crate) ordered: bool,
    /// True if as many passes of rank 0 waited for their backward pass as by the formula of the
    /// schedule: the order above is compared with a plan, and this with no plan.
    pub(crate) held: bool,
    /// The passes of the last step, replayed.
    pub(crate) replay: Option<PipelineTrace>,
}

impl PipelineCheck {
    /// Compares the `traces` of all steps with the plan of `setup`.
    pub(crate) fn new(setup: &Parallelism, config: &Config, traces: &[PipelineTrace]) -> Self {
        let ranks = setup.mesh.size(MeshAxis::Pp);
        if ranks == 1 {
            return Self { ordered: true, held: true, ..Self::default() };
        }
        let plan = setup.schedule.plan(ranks, setup.micros).expect("a setup is checked");
        let ordered = traces.iter().all(|trace| executed(&plan, trace) == plan);
        let costs = least_costs(traces);
        let replay = |trace: &PipelineTrace| simulate(&executed(&plan, trace), &costs);
        let idle = |trace| replay(trace).map_or(f64::INFINITY, |replay| replay.idle());
        let by_layers = simulate(&plan, |rank, op| multiplications(setup, config, (rank, op)));
        Self {
            bubble: median(traces.iter().map(idle)),
            theory: by_layers.expect("every plan ends").idle(),
            ordered,
            held: traces.iter().all(|trace| holds_by_formula(setup, trace)),
            replay: traces.last().and_then(|trace| replay(trace).ok()),
        }
    }

    /// True if passes ran in order, and the bubble is near that of theory. On a GPU the bubble is not
    /// compared, because CPU time does not measure its layers.
    pub(crate) fn fits(&self, on_processors: bool) -> bool {
        self.ordered && self.held && (!on_processors || (self.bubble - self.theory).abs() <= NEAR)
    }
}

/// True if the maximum of waiting passes of rank 0 in `trace` equals the schedule's formula.
fn holds_by_formula(setup: &Parallelism, trace: &PipelineTrace) -> bool {
    let (mut waiting, mut most) = (0i64, 0);
    for span in trace.spans.iter().filter(|span| span.rank == 0) {
        waiting += if span.op.pass == PassKind::Forward { 1 } else { -1 };
        most = most.max(waiting);
    }
    let held = setup.schedule.held(setup.mesh.size(MeshAxis::Pp), setup.micros);
    (held * setup.schedule.chunks() as f64 - most as f64).abs() < 0.5
}

/// The least seconds that a pass of a rank, in one direction through one of its stages, took in
/// `traces`.
fn least_costs(traces: &[PipelineTrace]) -> impl Fn(usize, StagePass) -> f64 {
    let mut least = HashMap::new();
    for PassSpan { rank, op, work, .. } in traces.iter().flat_map(|trace| &trace.spans) {
        let cost = least.entry((*rank, op.pass, op.chunk)).or_insert(*work);
        *cost = work.min(*cost);
    }
    move |rank, op| least.get(&(rank, op.pass, op.chunk)).copied().unwrap_or(0.0)
}

/// The passes of `trace` in the order in which each rank ran them.
fn executed(plan: &PipelinePlan, trace: &PipelineTrace) -> PipelinePlan {
    let of = |rank| trace.spans.iter().filter(move |span| span.rank == rank).map(|span| span.op);
    PipelinePlan { ops: (0..plan.ranks).map(|rank| of(rank).collect()).collect(), ..*plan }
}

/// Multiplications of a pass for each token. A backward pass has twice those of its forward pass.
fn multiplications(setup: &Parallelism, config: &Config, (rank, op): (usize, StagePass)) -> f64 {
    let ranks = setup.mesh.size(MeshAxis::Pp);
    let stage = op.chunk * ranks + rank;
    let layers = setup.layers(config, stage).len();
    let block = config.width * (12 * config.width + 2 * config.context);
    let last = stage + 1 == ranks * setup.schedule.chunks();
    let head = if last { config.width * config.vocab } else { 0 };
    let forward = (layers * block + head) as f64;
    if op.pass == PassKind::Forward { forward } else { 2.0 * forward }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
    use maypole_trainer::ranks::mesh::Mesh;

    fn setup(schedule: PipelineSchedule) -> Parallelism {
        Parallelism { schedule, micros: 8, ..Parallelism::of(Mesh::parse("pp=4").unwrap()) }
    }

    /// The trace of a run by `schedule` in which each pass takes what its layers need.
    fn trace(schedule: PipelineSchedule) -> PipelineTrace {
        let config = Config::default();
        let plan = schedule.plan(4, 8).unwrap();
        simulate(&plan, |rank, op| multiplications(&setup(schedule), &config, (rank, op))).unwrap()
    }

    #[test]
    fn the_bubble_is_that_of_the_plan_and_another_order_is_noticed() {
        let config = Config::default();
        let one = PipelineSchedule::OneForwardOneBackward;
        let right = PipelineCheck::new(&setup(one), &config, &[trace(one)]);
        assert!(right.fits(true) && (right.bubble - right.theory).abs() < 1e-9, "{right:?}");
        assert!(right.theory > one.idle(4, 8), "the head makes the last stage longer");
        let other = PipelineCheck::new(&setup(one), &config, &[trace(PipelineSchedule::GPipe)]);
        assert!(!other.ordered && !other.held && !other.fits(true));
    }

    /// A plan maker that makes GPipe of 1F1B is wrong in the run and in the theory of its order.
    #[test]
    fn a_wrong_plan_is_noticed_by_what_waits() {
        let one = PipelineSchedule::OneForwardOneBackward;
        for schedule in [one, PipelineSchedule::GPipe, PipelineSchedule::Interleaved(2)] {
            assert!(holds_by_formula(&setup(schedule), &trace(schedule)), "{schedule:?}");
        }
        assert!(!holds_by_formula(&setup(one), &trace(PipelineSchedule::GPipe)));
        assert!(!holds_by_formula(&setup(PipelineSchedule::GPipe), &trace(one)));
        let check = PipelineCheck { ordered: true, held: false, ..PipelineCheck::default() };
        assert!(!check.fits(true));
    }

    #[test]
    fn passes_that_another_program_slowed_down_do_not_count() {
        let one = PipelineSchedule::OneForwardOneBackward;
        let mut slow = trace(one);
        for span in slow.spans.iter_mut().filter(|span| span.rank == 0 && span.op.micro < 7) {
            span.work *= 3.0;
        }
        let check = PipelineCheck::new(&setup(one), &Config::default(), &[slow]);
        assert!(check.fits(true) && (check.bubble - check.theory).abs() < 1e-9, "{check:?}");
    }

    #[test]
    fn a_bubble_of_a_third_where_a_ninth_is_due_does_not_pass() {
        let check = |bubble, theory| {
            PipelineCheck { bubble, theory, ordered: true, held: true, replay: None }.fits(true)
        };
        assert!(check(0.16, 0.11) && check(0.40, 0.36));
        assert!(!check(0.36, 0.11) && !check(0.11, 0.36));
    }
}
