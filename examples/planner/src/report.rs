//! The planner's result as text and as JSON.

use crate::cluster::AcceleratorCluster;
use crate::memory::RankBytes;
use crate::search::{Advice, PricedStrategy};
use crate::sizes::ModelSizes;
use crate::strategy::ParallelStrategy;
use maypole_trainer::ranks::mesh::MeshAxis;
use serde_json::{Value, json};
use std::fmt::Write;

/// Bytes of a GB.
const GB: f64 = 1e9;

/// The bytes of a rank as a table: kind, GB, share of the whole.
///
/// ```
/// use maypole_planner::memory::RankBytes;
/// use maypole_planner::report::memory_text;
/// use maypole_planner::strategy::ParallelStrategy;
/// use maypole_planner::sizes::ModelSizes;
/// let model = ModelSizes::preset("7b").unwrap();
/// let bytes = RankBytes::of(&model, &ParallelStrategy::ONE);
/// assert!(memory_text(&bytes).contains("weights                      13.48 GB"));
/// ```
pub fn memory_text(bytes: &RankBytes) -> String {
    let mut out = String::new();
    let all = bytes.total();
    for (name, part) in kinds(bytes) {
        let share = 100.0 * part / all;
        let _ = writeln!(out, "  {name:<26} {:>7.2} GB {share:>5.1} %", part / GB);
    }
    let _ = writeln!(out, "  {:<26} {:>7.2} GB", "in all", all / GB);
    out
}

/// Every kind of memory of a rank, with its bytes.
fn kinds(bytes: &RankBytes) -> [(&'static str, f64); 13] {
    let RankBytes { state, activations, units, buffers } = bytes;
    [
        ("weights", state.weights),
        ("gradients", state.gradients),
        ("32-bit masters", state.masters),
        ("optimizer's moments", state.moments),
        ("activations: norms", activations.norms),
        ("             attention", activations.attention),
        ("             probabilities", activations.probabilities),
        ("             feed-forward", activations.feed_forward),
        ("             experts", activations.experts),
        ("             computed again", activations.again),
        ("             logits", activations.logits),
        ("gathered units", *units),
        ("buffers", *buffers),
    ]
}

/// The advice as text: the `most` fastest meshes, and those on which no strategy fits.
pub fn advice_text(advice: &Advice, most: usize) -> String {
    let mut out = String::new();
    let usable = advice.usable / GB;
    let _ = writeln!(
        out,
        "{} ways fit into {usable:.1} GB a rank, {} do not; the fastest of each mesh:",
        advice.fitting, advice.refused
    );
    out.push_str(
        "(step: seconds; GB: of the fullest rank; then the share of the step in %: dp is what no \
         pass hides\nof gradients and weights, again what is computed twice)\n",
    );
    let _ = writeln!(
        out,
        "{:>3} {:>8} {:>5} {:>6} | {:>7} {:>5} {:>4} {:>4} {:>4} {:>6} {:>6} {:>4} {:>6}",
        "",
        "step",
        "MFU",
        "GB",
        "compute",
        "again",
        "tp",
        "cp",
        "ep",
        "stages",
        "bubble",
        "dp",
        "update"
    );
    for (nth, way) in advice.best.iter().take(most).enumerate() {
        out.push_str(&row(nth + 1, way));
    }
    out.push_str(&unfit_text(advice));
    out
}

fn row(nth: usize, way: &PricedStrategy) -> String {
    let seconds = way.price.total();
    let share = way.price.parts().map(|(_, part)| 100.0 * part / seconds);
    let [compute, again, tp, cp, ep, stages, bubble, copies, update] = share;
    format!(
        "{nth:>3} {seconds:>8.3} {:>4.1}% {:>6.1} | {compute:>7.1} {again:>5.1} {tp:>4.1} \
         {cp:>4.1} {ep:>4.1} {stages:>6.1} {bubble:>6.1} {copies:>4.1} {update:>6.1}\n    {}\n",
        100.0 * way.utilisation,
        way.bytes.total() / GB,
        way.strategy
    )
}

/// The meshes on which no strategy fits, and the overflow of memory.
fn unfit_text(advice: &Advice) -> String {
    let mut out = String::new();
    for unfit in &advice.nearest {
        let over = (unfit.bytes - advice.usable) / GB;
        let _ = writeln!(
            out,
            "does not fit: {:.1} GB, {over:.1} GB too many\n    {}",
            unfit.bytes / GB,
            unfit.strategy
        );
    }
    out
}

/// The advice as one JSON object.
pub fn advice_json(
    model: &ModelSizes,
    cluster: &AcceleratorCluster,
    advice: &Advice,
    most: usize,
) -> Value {
    let best: Vec<Value> = advice.best.iter().take(most).map(way_json).collect();
    let nearest: Vec<Value> = advice
        .nearest
        .iter()
        .map(|unfit| {
            let over = unfit.bytes - advice.usable;
            json!({"strategy": strategy_json(&unfit.strategy), "bytes": unfit.bytes, "over": over})
        })
        .collect();
    json!({
        "model": model,
        "parameters": model.parameters(),
        "ranks": cluster.ranks(),
        "accelerator": cluster.accelerator.name,
        "usable_bytes": advice.usable,
        "fitting": advice.fitting,
        "refused": advice.refused,
        "best": best,
        "unfit": nearest,
    })
}

fn way_json(way: &PricedStrategy) -> Value {
    json!({
        "strategy": strategy_json(&way.strategy),
        "bytes": way.bytes,
        "bytes_in_all": way.bytes.total(),
        "seconds": way.price,
        "seconds_in_all": way.price.total(),
        "mfu": way.utilisation,
    })
}

/// A strategy as JSON.
pub fn strategy_json(strategy: &ParallelStrategy) -> Value {
    let mesh: serde_json::Map<String, Value> = MeshAxis::ALL
        .into_iter()
        .map(|axis| (axis.name().to_owned(), strategy.mesh.size(axis).into()))
        .collect();
    json!({
        "mesh": mesh,
        "sequence": strategy.sequence,
        "sharding": strategy.stage.name(),
        "pipeline": strategy.schedule.name(),
        "rows": strategy.rows,
        "micros": strategy.micros,
        "recompute": strategy.recompute.name(),
        "precision": strategy.format.name(),
    })
}
