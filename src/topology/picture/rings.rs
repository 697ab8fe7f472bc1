//! Draws each ring as a circle. The ranks are in numerical order on every circle, so that rings can
//! be compared.

use crate::topology::model::class::PathClass;
use crate::topology::model::graph::{NodeKind, Topology};
use crate::topology::search::lanes::{Lane, lanes};
use std::f64::consts::TAU;
use std::fmt::Write as _;

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
        PathClass::Pix | PathClass::Pxb => "9 3",
        PathClass::Phb | PathClass::Node => "5 3",
        PathClass::Sys => "3 3",
        PathClass::Net => "1 3",
    }
}

/// The circles from `top` on within `width`, and the lower edge of the picture.
pub(super) fn draw(topology: &Topology, top: f64, width: f64) -> (String, f64) {
    let ranks = topology.devices();
    let found = if (2..=MOST_RANKS).contains(&ranks.len()) {
        lanes(topology).unwrap_or_default()
    } else {
        Vec::new()
    };
    if found.is_empty() {
        return (String::new(), top);
    }
    let columns = ((width - 20.0) / CELL).floor().max(1.0) as usize;
    let mut text = heads();
    for (nth, lane) in found.iter().take(MOST).enumerate() {
        let column = nth % columns;
        let row = nth / columns;
        let center = (20.0 + CELL * (column as f64 + 0.5), top + CELL * row as f64 + RADIUS + 48.0);
        text += &ring(topology, lane, nth, center);
    }
    let bottom = top + CELL * found.len().min(MOST).div_ceil(columns) as f64 + 30.0;
    let more = match found.len() {
        count if count > MOST => format!("{} more rings are not drawn.", count - MOST),
        _ => String::new(),
    };
    let lines = [
        "Hops: solid over NVLink or XGMI; long dashes over PCIe switches; medium dashes over a",
        "host bridge; short dashes between NUMA nodes; dotted over the network.",
        &more,
    ];
    for (nth, line) in lines.into_iter().enumerate() {
        let y = bottom + 18.0 * nth as f64;
        let _ = writeln!(text, "<text x=\"20\" y=\"{y:.0}\" fill=\"#555555\">{line}</text>");
    }
    (text, bottom + 54.0)
}

fn heads() -> String {
    let head = |(nth, colour): (usize, &&str)| {
        format!(
            "<marker id=\"hop{nth}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" \
             markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
             <path d=\"M0,1 L10,5 L0,9 z\" fill=\"{colour}\"/></marker>\n"
        )
    };
    format!("<defs>\n{}</defs>\n", COLOURS.iter().enumerate().map(head).collect::<String>())
}

fn ring(topology: &Topology, lane: &Lane, nth: usize, center: (f64, f64)) -> String {
    let count = lane.order.len();
    let worst = lane.hops.iter().min_by_key(|path| path.class);
    let narrowest = lane.hops.iter().map(|path| path.bandwidth).fold(f64::INFINITY, f64::min);
    let class = worst.map_or(String::new(), |path| path.class.to_string());
    let mut text = format!(
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"{}\">\
         ring {nth}: worst hop {class}, {narrowest:.0} GB/s</text>\n",
        center.0,
        center.1 - RADIUS - 26.0,
        COLOURS[nth],
    );
    for (place, hop) in lane.hops.iter().enumerate() {
        let from = lane.order[place];
        let to = lane.order[(place + 1) % count];
        text += &arrow(at(center, from, count), at(center, to, count), nth, hop.class, dot(count));
    }
    let kind = if topology.nodes_of(NodeKind::Gpu).is_empty() { "#e8e0f4" } else { "#d8efd8" };
    for rank in 0..count {
        let (x, y) = at(center, rank, count);
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{}\" fill=\"{kind}\" stroke=\"#555555\"/>",
            dot(count)
        );
        if count <= 32 {
            let _ = writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"{}\">\
                 {rank}</text>",
                y + 3.5,
                dot(count).min(10.0)
            );
        }
    }
    text
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
fn arrow(from: (f64, f64), to: (f64, f64), nth: usize, class: PathClass, dot: f64) -> String {
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
    format!(
        "<path d=\"M{:.1},{:.1} Q{:.1},{:.1} {:.1},{:.1}\" fill=\"none\" \
         stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" \
         marker-end=\"url(#hop{nth})\"/>\n",
        start.0,
        start.1,
        control.0,
        control.1,
        end.0,
        end.1,
        COLOURS[nth],
        dashes(class),
    )
}
