//! The position of each node: a row for each layer, a column for each GPU, core and card, and a
//! parent above the middle of its children.

use maypole::topology::model::graph::{LinkKind, NodeKind, Topology};

#[derive(Clone, Copy, Debug)]
pub(super) struct BoxPosition {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    /// Whether it is a bar that spans all nodes joined to it.
    pub(super) bar: bool,
}

pub(super) struct PictureLayout {
    /// By node; `None` for a node that is not drawn.
    pub(super) places: Vec<Option<BoxPosition>>,
    /// The left and right edges of each host.
    pub(super) hosts: Vec<(f64, f64)>,
    /// The lower edge of the hosts.
    pub(super) bottom: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// The number of hosts that are not drawn.
    pub(super) left_out: usize,
}

const COLUMN: f64 = 74.0;
const ROW: f64 = 66.0;
const TOP: f64 = 92.0;
const BOX: f64 = 64.0;
const MOST_HOSTS: usize = 4;

/// A depth-first walk from the NUMA nodes of a host downwards.
struct LayoutWalk<'a> {
    topology: &'a Topology,
    neighbours: Vec<Vec<usize>>,
    seen: Vec<bool>,
    /// Node, column in pixels, and for switches the depth in switches.
    found: Vec<(usize, f64, usize)>,
    next: f64,
}

impl PictureLayout {
    pub(super) fn new(topology: &Topology) -> Self {
        let mut walk = LayoutWalk::new(topology);
        let shown = topology.hosts().min(MOST_HOSTS);
        let mut hosts = Vec::new();
        for host in 0..shown {
            let left = walk.next - 16.0;
            walk.host(host);
            hosts.push((left, (walk.next + 6.0).max(left + COLUMN * 2.0)));
            walk.next = hosts[host].1 + 40.0;
        }
        let deepest = walk.found.iter().map(|(_, _, depth)| *depth).max().unwrap_or(0);
        let mut layout = Self {
            places: vec![None; topology.nodes().len()],
            width: walk.next.max(640.0),
            hosts,
            bottom: 0.0,
            height: 0.0,
            left_out: topology.hosts() - shown,
        };
        let leaves = TOP + ROW * (2 + deepest) as f64;
        for &(node, x, depth) in &walk.found {
            let y = match topology.nodes()[node].kind {
                NodeKind::Numa => TOP,
                NodeKind::HostBridge => TOP + ROW,
                NodeKind::PciSwitch => TOP + ROW * (1 + depth) as f64,
                _ => leaves,
            };
            layout.places[node] = Some(BoxPosition { x, y, width: BOX, bar: false });
        }
        layout.bars(topology, leaves);
        layout
    }

    /// Places the switches between GPUs below the GPUs, and the network below all.
    fn bars(&mut self, topology: &Topology, leaves: f64) {
        let arcs =
            topology.links().iter().filter(|link| is_arc(topology, link.from, link.to, link.kind));
        let span =
            |(from, to): (usize, usize)| Some((self.places[from]?.x - self.places[to]?.x).abs());
        let deepest = arcs.filter_map(|link| span((link.from, link.to))).fold(0.0, f64::max);
        // A quadratic curve reaches half as deep as its control point.
        let mut below = leaves + ROW + deepest * 0.14;
        let switches = topology.nodes_of(NodeKind::GpuSwitch);
        for &switch in &switches {
            self.bar(topology, switch, below);
        }
        if switches.iter().any(|switch| self.places[*switch].is_some()) {
            below += ROW * 0.6;
        }
        self.bottom = below;
        for &switch in topology.nodes_of(NodeKind::NetworkSwitch).iter().rev() {
            below += ROW * 0.7;
            self.bar(topology, switch, below);
        }
        self.height = below + 30.0;
    }

    fn bar(&mut self, topology: &Topology, node: usize, y: f64) {
        let joined = topology.links().iter().filter(|link| link.to == node);
        let xs: Vec<f64> =
            joined.filter_map(|link| self.places[link.from]).map(|place| place.x).collect();
        let left = xs.iter().copied().fold(f64::INFINITY, f64::min);
        let right = xs.iter().copied().fold(0.0, f64::max);
        if !xs.is_empty() {
            self.places[node] = Some(BoxPosition {
                x: (left + right) / 2.0,
                y,
                width: right - left + BOX,
                bar: true,
            });
        }
    }
}

fn is_arc(topology: &Topology, from: usize, to: usize, kind: LinkKind) -> bool {
    let gpu = |node: usize| topology.nodes()[node].kind == NodeKind::Gpu;
    matches!(kind, LinkKind::NvLink(_) | LinkKind::Xgmi(_)) && gpu(from) && gpu(to)
}

const fn layer(kind: NodeKind) -> usize {
    match kind {
        NodeKind::Numa => 0,
        NodeKind::HostBridge => 1,
        NodeKind::PciSwitch => 2,
        NodeKind::Gpu | NodeKind::Core | NodeKind::Nic => 3,
        // A switch of GPUs or of a network.
        _ => 4,
    }
}

impl<'a> LayoutWalk<'a> {
    fn new(topology: &'a Topology) -> Self {
        let mut neighbours = vec![Vec::new(); topology.nodes().len()];
        for link in topology
            .links()
            .iter()
            .filter(|link| matches!(link.kind, LinkKind::Pci | LinkKind::Local))
        {
            for (one, other) in [(link.from, link.to), (link.to, link.from)] {
                if !neighbours[one].contains(&other) {
                    neighbours[one].push(other);
                }
            }
        }
        let seen = vec![false; topology.nodes().len()];
        Self { topology, neighbours, seen, found: Vec::new(), next: 40.0 }
    }

    fn host(&mut self, host: usize) {
        let of_host: Vec<usize> = (0..self.topology.nodes().len())
            .filter(|&node| self.topology.nodes()[node].host == Some(host))
            .collect();
        for kind in
            [NodeKind::Numa, NodeKind::HostBridge, NodeKind::Gpu, NodeKind::Core, NodeKind::Nic]
        {
            for &node in of_host.iter().filter(|&&node| self.topology.nodes()[node].kind == kind) {
                if !self.seen[node] {
                    self.visit(node, 0);
                }
            }
        }
    }

    /// Places a node and its children. Returns the node's column; `None` if it has no leaf below
    /// it.
    fn visit(&mut self, node: usize, depth: usize) -> Option<f64> {
        self.seen[node] = true;
        let kind = self.topology.nodes()[node].kind;
        let depth = depth + usize::from(kind == NodeKind::PciSwitch);
        if layer(kind) == 3 {
            let x = self.next + BOX / 2.0;
            self.next += COLUMN;
            self.found.push((node, x, 0));
            return Some(x);
        }
        let mut columns = Vec::new();
        for child in self.neighbours[node].clone() {
            let below = layer(self.topology.nodes()[child].kind);
            let is_below = below > layer(kind) || (below == 2 && kind == NodeKind::PciSwitch);
            if is_below && !self.seen[child] {
                columns.extend(self.visit(child, depth));
            }
        }
        let x = (columns.first()? + columns.last()?) / 2.0;
        self.found.push((node, x, depth));
        Some(x)
    }
}
