//! Draws a topology and its rings as SVG.
//!
//! The upper part shows the tree from the NUMA nodes down to GPUs and network cards, with the
//! bandwidth of every link in GB/s. Below it are the direct links between GPUs. The lower part
//! shows every ring that is used at the same time. The dashes of a hop tell its class.

mod layout;
mod rings;

use crate::topology::model::graph::{Link, LinkKind, NodeKind, Topology};
use layout::{BoxPosition, PictureLayout};
use std::fmt::Write as _;

/// Draws `topology`, at most four of its hosts, under `title`.
///
/// The picture needs no script and no font, and has a white background.
///
/// ```
/// use maypole::topology::build::cluster::{Fabric, named};
/// use maypole::topology::picture::svg;
/// let picture = svg(&named("dgx-a100", Fabric::Flat).unwrap(), "8 x A100");
/// assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
/// assert!([">GPU7<", ">NVSwitch<", "ring 0"].iter().all(|part| picture.contains(part)));
/// ```
pub fn svg(topology: &Topology, title: &str) -> String {
    let layout = PictureLayout::new(topology);
    let (rings, height) = rings::draw(topology, layout.height, layout.width);
    let body = [
        heading(title, &layout),
        hosts(&layout),
        wires(topology, &layout),
        boxes(topology, &layout),
        rings,
    ];
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
        body.concat(),
        width = layout.width,
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn heading(title: &str, layout: &PictureLayout) -> String {
    let more = match layout.left_out {
        0 => String::new(),
        hosts => format!(" (and {hosts} more hosts)"),
    };
    format!(
        "<text x=\"20\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>\n",
        escaped(&(title.to_owned() + &more))
    )
}

fn hosts(layout: &PictureLayout) -> String {
    let host = |(nth, (left, right)): (usize, &(f64, f64))| {
        let width = right - left;
        let height = layout.bottom - 46.0;
        format!(
            "<rect x=\"{left:.0}\" y=\"46\" width=\"{width:.0}\" height=\"{height:.0}\" \
             rx=\"8\" fill=\"#fafafa\" stroke=\"#bbbbbb\"/>\n\
             <text x=\"{:.0}\" y=\"64\" fill=\"#777777\">host {nth}</text>\n",
            left + 10.0,
        )
    };
    layout.hosts.iter().enumerate().map(host).collect()
}

/// The colour and the dashes of a kind of link.
const fn style(kind: LinkKind) -> (&'static str, &'static str) {
    match kind {
        LinkKind::NvLink(_) => ("#2a8f2a", ""),
        LinkKind::Xgmi(_) => ("#d1600a", ""),
        LinkKind::Pci => ("#5f6b73", ""),
        LinkKind::Local => ("#8c564b", ""),
        LinkKind::Sockets => ("#c62828", "6 3"),
        LinkKind::Network => ("#1f77b4", "2 3"),
    }
}

/// One line for each pair of linked nodes, with the bandwidth beside it.
fn wires(topology: &Topology, layout: &PictureLayout) -> String {
    let mut text = String::new();
    let joins = |link: &Link, a: usize, b: usize| link.from == a && link.to == b;
    for (at, link) in topology.links().iter().enumerate() {
        let back = topology.links()[..at].iter().any(|other| joins(other, link.to, link.from));
        let (Some(from), Some(to)) = (layout.places[link.from], layout.places[link.to]) else {
            continue;
        };
        if back {
            continue;
        }
        text += &match link.kind {
            LinkKind::NvLink(count) | LinkKind::Xgmi(count) if from.y == to.y => {
                arc(from, to, link, count)
            }
            _ => wire(from, to, link),
        };
    }
    text
}

fn wire(from: BoxPosition, to: BoxPosition, link: &Link) -> String {
    let (colour, dashes) = style(link.kind);
    let (upper, lower) = if from.y <= to.y { (from, to) } else { (to, from) };
    // A bar spans everything that is joined to it, so a line to a bar is vertical.
    let (x1, x2) = match (upper.bar, lower.bar) {
        (true, _) => (lower.x, lower.x),
        (_, true) => (upper.x, upper.x),
        _ => (upper.x, lower.x),
    };
    let below = if upper.y == lower.y { -5.0 } else { 4.0 };
    let middle = ((x1 + x2) / 2.0 + 3.0, (upper.y + lower.y) / 2.0 + below);
    let mut text = format!(
        "<line x1=\"{x1:.1}\" y1=\"{:.1}\" x2=\"{x2:.1}\" y2=\"{:.1}\" \
         stroke=\"{colour}\" stroke-width=\"{}\" stroke-dasharray=\"{dashes}\"/>\n",
        upper.y,
        lower.y,
        width(link.kind),
    );
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"{colour}\">{:.0}</text>",
        middle.0, middle.1, link.bandwidth
    );
    text
}

/// A direct link between two GPUs of one row: an arc below them.
fn arc(from: BoxPosition, to: BoxPosition, link: &Link, count: u32) -> String {
    let (colour, _) = style(link.kind);
    let x1 = from.x.min(to.x);
    let x2 = from.x.max(to.x);
    let y = from.y + 13.0;
    let depth = (x2 - x1) * 0.28 + 14.0;
    format!(
        "<path d=\"M{x1:.1},{y:.1} Q{:.1},{:.1} {x2:.1},{y:.1}\" fill=\"none\" \
         stroke=\"{colour}\" stroke-width=\"{:.1}\" stroke-opacity=\"0.7\">\
         <title>{count} links, {:.0} GB/s</title></path>\n",
        (x1 + x2) / 2.0,
        y + depth,
        (1.0 + f64::from(count) * 0.6).min(6.0),
        link.bandwidth,
    )
}

fn width(kind: LinkKind) -> f64 {
    match kind {
        LinkKind::NvLink(count) | LinkKind::Xgmi(count) => (1.0 + f64::from(count) * 0.25).min(6.0),
        _ => 1.5,
    }
}

fn boxes(topology: &Topology, layout: &PictureLayout) -> String {
    let node =
        |(node, place): (usize, &Option<BoxPosition>)| Some(shape(topology, node, (*place)?));
    layout.places.iter().enumerate().filter_map(node).collect()
}

fn shape(topology: &Topology, node: usize, place: BoxPosition) -> String {
    let fill = match topology.nodes()[node].kind {
        NodeKind::Gpu => "#d8efd8",
        NodeKind::Core => "#e8e0f4",
        NodeKind::Nic => "#dbe9f6",
        NodeKind::GpuSwitch => "#bfe3bf",
        NodeKind::PciSwitch => "#eceff1",
        NodeKind::HostBridge => "#f3e5dc",
        NodeKind::Numa => "#f8d7d7",
        NodeKind::NetworkSwitch => "#bcd7ee",
    };
    let left = place.x - place.width / 2.0;
    let top = place.y - 13.0;
    let name = &topology.nodes()[node].name;
    // Long names, such as addresses, are condensed rather than cut.
    let condense = if name.chars().count() as f64 * 7.2 > place.width - 4.0 {
        format!(" textLength=\"{:.0}\" lengthAdjust=\"spacingAndGlyphs\"", place.width - 6.0)
    } else {
        String::new()
    };
    format!(
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"26\" rx=\"4\" \
         fill=\"{fill}\" stroke=\"#555555\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\"{condense}>{}</text>\n",
        place.width,
        place.x,
        place.y + 4.0,
        escaped(name),
    )
}
