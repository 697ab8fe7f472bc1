//! Draws each ring as a circle. The ranks are in numerical order on every circle, so that rings can
//! be compared.

use super::layout::PictureLayout;
use crate::search::lanes::{Lane, lanes};
use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::{NodeKind, Topology};
use maypole_pictures::writer::SvgWriter;
use std::f64::consts::TAU;

const COLOURS: [&str; 8] =
    ["#1f77b4", "#d1600a", "#2a8f2a", "#c62828", "#7b52ab", "#8c564b", "#c2449c", "#0f8f9c"];
const CELL: f64 = 250.0;
const RADIUS: f64 = 88.0;
/// The largest number of rings that are drawn.
const MOST: usize = 8;
const MOST_RANKS: usize = 128;

/// The dashes of a hop, by its class.
const fn dashes(class: PathClass) -> &'static str {
    match class {
        PathClass::Same | PathClass::NvLink(_) | PathClass::Xgmi(_) => "",
        PathClass::Pix | PathClass::Pxb => "9,3",
        PathClass::Phb | PathClass::Node => "5,3",
        PathClass::Sys => "3,3",
        PathClass::Net => "1,3",
    }
}

/// The rings of `topology` that can be drawn.
pub(super) fn found(topology: &Topology) -> Vec<Lane> {
    let can_draw = (2..=MOST_RANKS).contains(&topology.devices().len());
    if can_draw { lanes(topology).unwrap_or_default() } else { Vec::new() }
}

/// How many circles stand side by side.
fn columns(layout: &PictureLayout) -> usize {
    ((layout.width - 20.0) / CELL).floor().max(1.0) as usize
}

/// The lower edge of the circles.
fn lower_edge(rings: &[Lane], layout: &PictureLayout) -> f64 {
    layout.height + CELL * rings.len().min(MOST).div_ceil(columns(layout)) as f64 + 30.0
}

/// The lower edge of the picture.
pub(super) fn bottom(rings: &[Lane], layout: &PictureLayout) -> f64 {
    if rings.is_empty() { layout.height } else { lower_edge(rings, layout) + 54.0 }
}

/// Draws the circles below the machine.
pub(super) fn draw(
    out: &mut SvgWriter,
    topology: &Topology,
    rings: &[Lane],
    layout: &PictureLayout,
) {
    if rings.is_empty() {
        return;
    }
    out.arrow_heads(&COLOURS);
    for (nth, lane) in rings.iter().take(MOST).enumerate() {
        let column = (nth % columns(layout)) as f64;
        let row = (nth / columns(layout)) as f64;
        let top = layout.height + CELL * row;
        ring(out, topology, lane, nth, (20.0 + CELL * (column + 0.5), top + RADIUS + 48.0));
    }
    let more = match rings.len() {
        count if count > MOST => format!("{} more rings are not drawn.", count - MOST),
        _ => String::new(),
    };
    let lines = [
        "Hops: solid over NVLink or XGMI; long dashes over PCIe switches; medium dashes over a",
        "host bridge; short dashes between NUMA nodes; dotted over the network.",
        &more,
    ];
    for (nth, line) in lines.into_iter().enumerate() {
        out.text([20.0, lower_edge(rings, layout) + 18.0 * nth as f64], "fill=#555555", line);
    }
}

fn ring(out: &mut SvgWriter, topology: &Topology, lane: &Lane, nth: usize, center: (f64, f64)) {
    let count = lane.order.len();
    let worst = lane.hops.iter().min_by_key(|path| path.class);
    let narrowest = lane.hops.iter().map(|path| path.bandwidth).fold(f64::INFINITY, f64::min);
    let class = worst.map_or(String::new(), |path| path.class.to_string());
    out.text(
        [center.0, center.1 - RADIUS - 26.0],
        format_args!("text-anchor=middle fill={}", COLOURS[nth]),
        format_args!("ring {nth}: worst hop {class}, {narrowest:.0} GB/s"),
    );
    for (place, hop) in lane.hops.iter().enumerate() {
        let from = lane.order[place];
        let to = lane.order[(place + 1) % count];
        arrow(out, at(center, from, count), at(center, to, count), nth, hop.class, dot(count));
    }
    let kind = if topology.nodes_of(NodeKind::Gpu).is_empty() { "#e8e0f4" } else { "#d8efd8" };
    for rank in 0..count {
        let (x, y) = at(center, rank, count);
        out.circle([x, y], dot(count), format_args!("fill={kind} stroke=#555555"));
        if count <= 32 {
            let style = format!("text-anchor=middle font-size={:.1}", dot(count).min(10.0));
            out.text([x, y + 3.5], style, rank);
        }
    }
}

/// The radius of the dot of a rank, on a circle of `count` ranks.
fn dot(count: usize) -> f64 {
    (TAU * RADIUS / count as f64 * 0.36).clamp(2.0, 12.0)
}

fn at(center: (f64, f64), rank: usize, count: usize) -> (f64, f64) {
    let angle = TAU * rank as f64 / count as f64 - TAU / 4.0;
    (center.0 + RADIUS * angle.cos(), center.1 + RADIUS * angle.sin())
}

/// An arrow from the edge of one rank to the edge of another. It is bent to its left, so that two
/// opposite hops are two lines.
fn arrow(
    out: &mut SvgWriter,
    from: (f64, f64),
    to: (f64, f64),
    nth: usize,
    class: PathClass,
    dot: f64,
) {
    let dx = to.0 - from.0;
    let dy = to.1 - from.1;
    let length = dx.hypot(dy).max(1.0);
    let bend = 0.09;
    let control = ((from.0 + to.0) / 2.0 + dy * bend, (from.1 + to.1) / 2.0 - dx * bend);
    let toward = |end: (f64, f64), other: (f64, f64)| {
        let x = other.0 - end.0;
        let y = other.1 - end.1;
        let far = x.hypot(y).max(1.0);
        (end.0 + x / far * dot.min(length / 2.0), end.1 + y / far * dot.min(length / 2.0))
    };
    let start = toward(from, control);
    let end = toward(to, control);
    let path = format!(
        "M{:.1},{:.1} Q{:.1},{:.1} {:.1},{:.1}",
        start.0, start.1, control.0, control.1, end.0, end.1
    );
    let stroke = format!("stroke={} stroke-width=2", COLOURS[nth]);
    let dashes = dashes(class);
    out.path(
        path,
        format_args!("fill=none {stroke} stroke-dasharray={dashes} marker-end=url(#head{nth})"),
    );
}
