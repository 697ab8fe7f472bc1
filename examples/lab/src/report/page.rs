//! A page to step through the passes of pipelines: the micro-batch of each stage over time, the waits
//! between ranks, and the activations of each rank. It also shows the groups of ranks along each axis of
//! a mesh.
//!
//! What is sharded, which collective runs where, cost: nothing.

use crate::replay::TraceFigures;
use maypole_pictures::page::SteppedPage;
use maypole_trainer::pipeline_parallel::plan::{PassKind, PipelinePlan};
use maypole_trainer::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use serde_json::{Value, json};

/// The most ranks of a mesh on a page.
pub const MOST_PLACES: usize = 256;

/// A pipeline with the times of its passes, simulated with [`equal_stages`](crate::replay::equal_stages).
#[derive(Clone, Debug)]
pub struct TimedPlan {
    /// The name of the schedule.
    pub name: String,
    /// Its passes.
    pub plan: PipelinePlan,
    /// Their times.
    pub trace: PipelineTrace,
}

/// The page of `plans`, of which a reader chooses one, and of the axes of `mesh` that have several ranks.
///
/// ```
/// use maypole_lab::replay::{equal_stages, simulate};
/// use maypole_lab::report::page::{TimedPlan, page};
/// use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
/// let plan = PipelineSchedule::GPipe.plan(2, 3).unwrap();
/// let trace = simulate(&plan, equal_stages(&plan)).unwrap();
/// let page = page("Two ranks", &[TimedPlan { name: "gpipe".into(), plan, trace }], None);
/// assert!(page.contains("<h1>Two ranks</h1>") && page.contains("idle 25.0 %"));
/// ```
pub fn page(title: &str, plans: &[TimedPlan], mesh: Option<&Mesh>) -> String {
    let data = json!({
        "plans": plans.iter().map(TimedPlan::data).collect::<Value>(),
        "mesh": mesh.map(mesh_data),
    });
    let page = SteppedPage {
        title,
        style: include_str!("plan.css"),
        body: include_str!("plan.html"),
        script: include_str!("plan.js"),
        data: &data,
    };
    page.to_string()
}

impl TimedPlan {
    /// Times are whole numbers: a forward pass through one stage is 1.
    fn data(&self) -> Value {
        let Self { name, plan, trace } = self;
        let told = format!(
            "{name}, {} ranks, {} micro-batches: idle {:.1} %, rank 0 holds {:.1} micro-batches at most",
            plan.ranks,
            plan.micros,
            100.0 * trace.idle(),
            trace.held(0)
        );
        let passes: Value = trace.spans.iter().map(|span| self.pass(span)).collect();
        json!({
            "name": name, "ranks": plan.ranks, "chunks": plan.chunks, "told": told, "passes": passes,
        })
    }

    /// Rank, direction, micro-batch, stage, start, end; and where the pass needs another one, that
    /// one's rank and end.
    fn pass(&self, span: &PassSpan) -> Value {
        let PassSpan { rank, op, start, end, .. } = *span;
        let whole = |time: f64| (time * self.plan.chunks as f64).round() as u64;
        let backward = u8::from(op.pass == PassKind::Backward);
        let mut told = json!([rank, backward, op.micro, op.chunk, whole(start), whole(end)]);
        let needed = self.plan.before(rank, op);
        let of_needed =
            |span: &&PassSpan| needed.is_some_and(|needed| (span.rank, span.op) == needed);
        if let (Some(needed), Value::Array(told)) =
            (self.trace.spans.iter().find(of_needed), &mut told)
        {
            told.extend([json!(needed.rank), json!(whole(needed.end))]);
        }
        told
    }
}

fn mesh_data(mesh: &Mesh) -> Value {
    let axes: Vec<MeshAxis> =
        MeshAxis::ALL.into_iter().filter(|axis| mesh.size(*axis) > 1).collect();
    let place = |rank: usize| {
        let place = mesh.place(rank);
        let at = axes.iter().map(|axis| format!("{} {}", axis.name(), place.at(*axis)));
        at.collect::<Vec<_>>().join(", ")
    };
    let groups = |axis: MeshAxis| -> Vec<Vec<usize>> {
        let groups = (0..mesh.world()).map(|rank| (rank, mesh.members(rank, &[axis])));
        groups.filter(|(rank, group)| group[0] == *rank).map(|(_, group)| group).collect()
    };
    let of_axis = |axis: &MeshAxis| {
        let [divides, exchange, when] = words(*axis);
        json!({
            "name": axis.name(), "divides": divides, "exchange": exchange, "when": when,
            "groups": groups(*axis),
        })
    };
    json!({
        "ranks": (0..mesh.world()).map(place).collect::<Value>(),
        "axes": axes.iter().map(of_axis).collect::<Value>(),
    })
}

/// The objects that an axis divides, the messages of the ranks along it, and their times.
fn words(axis: MeshAxis) -> [&'static str; 3] {
    match axis {
        MeshAxis::Dp => ["rows of the batch", "sums of gradients", "once a step"],
        MeshAxis::Pp => [
            "layers",
            "activations and their gradients, pair by pair",
            "once a micro-batch and direction",
        ],
        MeshAxis::Ep => [
            "experts, and rows of the batch as dp does",
            "tokens, to the ranks of their experts and back",
            "four times a layer",
        ],
        MeshAxis::Cp => {
            ["positions of a sequence", "keys and values, or heads for positions", "in every layer"]
        }
        MeshAxis::Tp => {
            ["columns, rows and heads", "sums of partial activations", "four times a layer"]
        }
    }
}
