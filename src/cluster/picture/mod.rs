//! Draws a topology and its rings as SVG.
//!
//! The upper part shows the tree from the NUMA nodes down to GPUs and network cards, with the
//! bandwidth of every link in GB/s. Below it are the direct links between GPUs. The lower part
//! shows every ring that is used at the same time. The dashes of a hop show its class.

mod layout;
mod rings;

use layout::{BoxPosition, PictureLayout};
use maypole::topology::model::graph::{Link, LinkKind, NodeKind, Topology};
use maypole_pictures::writer::SvgWriter;

/// Draws `topology`, at most four of its hosts, under `title`.
///
/// The picture needs no script and no font, and has a white background.
///
/// ```
/// use maypole_cluster::build::cluster::{Fabric, named};
/// use maypole_cluster::picture::svg;
/// let picture = svg(&named("dgx-a100", Fabric::Flat).unwrap(), "8 x A100");
/// assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
/// assert!([">GPU7<", ">NVSwitch<", "ring 0"].iter().all(|part| picture.contains(part)));
/// ```
pub fn svg(topology: &Topology, title: &str) -> String {
    let layout = PictureLayout::new(topology);
    let rings = rings::found(topology);
    let mut out = SvgWriter::page(layout.width, rings::bottom(&rings, &layout));
    heading(&mut out, title, &layout);
    hosts(&mut out, &layout);
    wires(&mut out, topology, &layout);
    boxes(&mut out, topology, &layout);
    rings::draw(&mut out, topology, &rings, &layout);
    out.finish()
}

fn heading(out: &mut SvgWriter, title: &str, layout: &PictureLayout) {
    let more = match layout.left_out {
        0 => String::new(),
        hosts => format!(" (and {hosts} more hosts)"),
    };
    out.text([20.0, 28.0], "font-size=16 font-weight=bold", format_args!("{title}{more}"));
}

fn hosts(out: &mut SvgWriter, layout: &PictureLayout) {
    for (nth, (left, right)) in layout.hosts.iter().enumerate() {
        let place = [*left, 46.0, right - left, layout.bottom - 46.0];
        out.rect(place, "rx=8 fill=#fafafa stroke=#bbbbbb");
        out.text([left + 10.0, 64.0], "fill=#777777", format_args!("host {nth}"));
    }
}

/// The colour and the dashes of a kind of link.
const fn style(kind: LinkKind) -> (&'static str, &'static str) {
    match kind {
        LinkKind::NvLink(_) => ("#2a8f2a", ""),
        LinkKind::Xgmi(_) => ("#d1600a", ""),
        LinkKind::C2c => ("#2a8f2a", "6,3"),
        LinkKind::Pci => ("#5f6b73", ""),
        LinkKind::Local => ("#8c564b", ""),
        LinkKind::Sockets => ("#c62828", "6,3"),
        // A network.
        _ => ("#1f77b4", "2,3"),
    }
}

/// One line for each pair of linked nodes, with the bandwidth next to it.
fn wires(out: &mut SvgWriter, topology: &Topology, layout: &PictureLayout) {
    let joins = |link: &Link, a: usize, b: usize| link.from == a && link.to == b;
    for (at, link) in topology.links().iter().enumerate() {
        let back = topology.links()[..at].iter().any(|other| joins(other, link.to, link.from));
        let (Some(from), Some(to)) = (layout.places[link.from], layout.places[link.to]) else {
            continue;
        };
        match link.kind {
            _ if back => {}
            LinkKind::NvLink(count) | LinkKind::Xgmi(count) if from.y == to.y => {
                arc(out, from, to, link, count);
            }
            _ => wire(out, from, to, link),
        }
    }
}

fn wire(out: &mut SvgWriter, from: BoxPosition, to: BoxPosition, link: &Link) {
    let (colour, dashes) = style(link.kind);
    let (upper, lower) = if from.y <= to.y { (from, to) } else { (to, from) };
    // A bar spans everything that is joined to it, so a line to a bar is vertical.
    let (x1, x2) = match (upper.bar, lower.bar) {
        (true, _) => (lower.x, lower.x),
        (_, true) => (upper.x, upper.x),
        _ => (upper.x, lower.x),
    };
    let below = if upper.y == lower.y { -5.0 } else { 4.0 };
    let middle = [(x1 + x2) / 2.0 + 3.0, (upper.y + lower.y) / 2.0 + below];
    let stroke = format!("stroke={colour} stroke-width={}", width(link.kind));
    out.line([x1, upper.y, x2, lower.y], format_args!("{stroke} stroke-dasharray={dashes}"));
    let bandwidth = format!("{:.0}", link.bandwidth);
    out.text(middle, format_args!("font-size=9 fill={colour}"), bandwidth);
}

/// A direct link between two GPUs of one row: an arc below them.
fn arc(out: &mut SvgWriter, from: BoxPosition, to: BoxPosition, link: &Link, count: u32) {
    let (colour, _) = style(link.kind);
    let x1 = from.x.min(to.x);
    let x2 = from.x.max(to.x);
    let y = from.y + 13.0;
    let control = ((x1 + x2) / 2.0, y + (x2 - x1) * 0.28 + 14.0);
    let width = (1.0 + f64::from(count) * 0.6).min(6.0);
    let path = format!("M{x1:.1},{y:.1} Q{:.1},{:.1} {x2:.1},{y:.1}", control.0, control.1);
    let style = format!("fill=none stroke={colour} stroke-width={width:.1} stroke-opacity=0.7");
    out.element("g", "", |out| {
        out.title(format_args!("{count} links, {:.0} GB/s", link.bandwidth));
        out.path(path, style);
    });
}

fn width(kind: LinkKind) -> f64 {
    match kind {
        LinkKind::NvLink(count) | LinkKind::Xgmi(count) => (1.0 + f64::from(count) * 0.25).min(6.0),
        _ => 1.5,
    }
}

fn boxes(out: &mut SvgWriter, topology: &Topology, layout: &PictureLayout) {
    for (node, place) in topology.nodes().iter().zip(&layout.places) {
        let Some(place) = place else { continue };
        let fill = match node.kind {
            NodeKind::Gpu => "#d8efd8",
            NodeKind::Core => "#e8e0f4",
            NodeKind::Nic => "#dbe9f6",
            NodeKind::GpuSwitch => "#bfe3bf",
            NodeKind::PciSwitch => "#eceff1",
            NodeKind::HostBridge => "#f3e5dc",
            NodeKind::Numa => "#f8d7d7",
            // A switch of a network.
            _ => "#bcd7ee",
        };
        let BoxPosition { x, y, width, .. } = *place;
        let style = format!("rx=4 fill={fill} stroke=#555555");
        out.rect([x - width / 2.0, y - 13.0, width, 26.0], style);
        // Long names, such as addresses, are condensed rather than cut.
        let condense = if node.name.chars().count() as f64 * 7.2 > width - 4.0 {
            format!(" textLength={:.0} lengthAdjust=spacingAndGlyphs", width - 6.0)
        } else {
            String::new()
        };
        out.text([x, y + 4.0], format_args!("text-anchor=middle{condense}"), &node.name);
    }
}
