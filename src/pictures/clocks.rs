//! Clocks: runs the schedules of all ranks on simulated clocks, in the units of the literature.
//!
//! # The model
//!
//! Cost is counted in [`Cost::alpha`] (seconds of latency of a message), [`Cost::beta`] (seconds a
//! byte) and [`Cost::gamma`] (seconds to reduce a byte), as the literature does, so that its
//! formulas come out exactly:
//!
//! * Consecutive sends to one peer are one message. It leaves when all its chunks are ready, and
//!   arrives as a whole.
//! * A message of `m` bytes arrives `alpha + m beta` after it left. A link carries one message at a
//!   time.
//! * [`Ports::Single`]: a rank's messages leave one after another through one port, for all
//!   receivers, and arrive one after another through another port. [`Ports::PerLink`]: each link
//!   has ports of its own.
//! * A rank reduces one thing at a time. Copies are free: executors fuse them away.
//! * The step that is ready first is served first. Of several that are ready at one time, the step
//!   of the earlier window comes first, then the earlier step of the list.
//!
//! # Windows
//!
//! Windows `0..W` run the same steps, each on an equal fraction of every chunk. In
//! [`StepOrder::Conflict`] a step waits only for earlier steps of its window that use the same link
//! in the same direction or touch the same span where one of the two writes. On a link, it also
//! waits for the same step of the window before. So windows overlap, which pipelines chains and
//! trees. There is no bound on windows in flight.

mod activities;

pub use activities::{PortActivity, SimulationRecord, TimedActivity, activities};
pub use maypole::schedule::conflict::StepOrder;
use maypole::schedule::conflict::{ConflictGraph, GraphNode, StepKind};
use maypole::schedule::walk::Stuck;
use maypole::schedule::{Layout, Schedule, part};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The costs of links and of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Latency of a message in seconds, at any length.
    pub alpha: f64,
    /// Seconds per byte.
    pub beta: f64,
    /// Seconds to reduce a byte.
    pub gamma: f64,
    /// The ports that messages of one rank share.
    pub ports: Ports,
}

/// The ports that messages of one rank share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Ports {
    /// All links of a rank share one port out and one port in, as with a network card.
    Single,
    /// None: every link has ports of its own.
    PerLink,
}

/// How long schedules take, and how many messages and bytes they move.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Time at which the last rank is done, in seconds.
    pub seconds: f64,
    /// By rank: the time at which it has taken its last step and its last byte has left.
    pub finish: Vec<f64>,
    /// Messages in all.
    pub messages: usize,
    /// Bytes that each rank sends.
    pub bytes_sent: Vec<usize>,
    /// Bytes that each rank reduces.
    pub bytes_reduced: Vec<usize>,
}

/// Prices `schedules`, one a rank, in conflict order: `layout` cuts the whole into chunks of
/// elements of `element_bytes` bytes, each chunk is cut into `windows`.
///
/// Pricing takes a few dozen nanoseconds for each step and window. Equal arguments give equal bits
/// on every host.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole_pictures::clocks::{Cost, Ports, simulate};
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// let cost = Cost { alpha: 5.0, beta: 0.25, gamma: 0.0, ports: Ports::Single };
/// let estimate = simulate(&ring, &Layout::even(1000, 4), 4, 1, cost).unwrap();
/// assert_eq!(estimate.seconds, 2.0 * 3.0 * (5.0 + 1000.0 * 0.25));
/// assert_eq!(estimate.bytes_sent, [6000; 4]);
/// ```
///
/// # Errors
/// [`Stuck`] if the steps cannot all be taken.
///
/// # Panics
/// If there are no windows, if the schedules do not have as many chunks as `layout`, or if they
/// name ranks, chunks of theirs or scratch that do not exist (see
/// [`verify`](mod@maypole::schedule::verify)).
pub fn simulate(
    schedules: &[Schedule],
    layout: &Layout,
    element_bytes: usize,
    windows: usize,
    cost: Cost,
) -> Result<Estimate, Stuck> {
    simulate_in(StepOrder::Conflict, schedules, layout, element_bytes, windows, cost)
}

/// [`simulate`] in a given order, to compare the two orders.
///
/// ```
/// # use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole_pictures::clocks::{Cost, StepOrder, Ports, simulate_in};
/// let tree = Algorithm::Tree.schedules(Collective::AllReduce, 7).unwrap();
/// let cost = Cost { alpha: 0.0, beta: 1.0, gamma: 0.0, ports: Ports::PerLink };
/// let layout = Layout::even(64, 1);
/// let units = |order| simulate_in(order, &tree, &layout, 1, 64, cost).unwrap().seconds;
/// assert_eq!(units(StepOrder::Conflict), 67.0);
/// assert_eq!(units(StepOrder::List), 256.0);
/// ```
///
/// # Errors
/// As [`simulate`].
///
/// # Panics
/// As [`simulate`].
pub fn simulate_in(
    order: StepOrder,
    schedules: &[Schedule],
    layout: &Layout,
    element_bytes: usize,
    windows: usize,
    cost: Cost,
) -> Result<Estimate, Stuck> {
    check(schedules, layout, windows);
    let graph = ConflictGraph::new(order, schedules)?;
    let sizes = Sizes { layout, element_bytes, windows };
    Ok(Clocks::new(&graph, sizes, cost, schedules.len()).run().estimate)
}

fn check(schedules: &[Schedule], layout: &Layout, windows: usize) {
    assert!(windows > 0, "a buffer has at least one window");
    let chunks = layout.chunks();
    assert!(
        schedules.iter().all(|s| s.chunks == chunks),
        "the layout has {chunks} chunks, the schedules have not"
    );
}

struct Sizes<'a> {
    layout: &'a Layout,
    element_bytes: usize,
    windows: usize,
}

impl Sizes<'_> {
    fn bytes(&self, chunks: &[usize], window: usize) -> usize {
        let elements =
            |&chunk: &usize| part(self.layout.range(chunk).len(), self.windows, window).len();
        chunks.iter().map(elements).sum::<usize>() * self.element_bytes
    }
}

/// A point in time, as the bits of a float. The bits of numbers that are not negative are in the
/// order of the numbers.
type TimeBits = u64;

/// An event of a node in a window, ordered by time. Of several at one time, the event of the
/// earlier window comes first, then the event of the earlier step.
type QueuedEvent = Reverse<(TimeBits, usize, NodeEvent)>;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum NodeEvent {
    /// All nodes that it waited for have ended: it queues for its port or for arithmetic.
    Ready,
    /// The first byte of a message reaches the receiver's port.
    Head,
}

struct Clocks<'a> {
    graph: &'a ConflictGraph,
    sizes: Sizes<'a>,
    cost: Cost,
    /// By window and node: the number of nodes that it waits for, and the end of the latest of
    /// them.
    waits: Vec<u32>,
    ready: Vec<f64>,
    /// By window and node: when it has ended.
    ended: Vec<f64>,
    events: BinaryHeap<QueuedEvent>,
    /// Nodes that have ended and whose successors are not updated yet, each with its end.
    news: Vec<(usize, f64)>,
    /// By rank: until when its port out is busy.
    out: Vec<f64>,
    /// By (from, to): until when the link is busy, if each link has ports of its own.
    links: Vec<f64>,
    arriving: Vec<f64>,
    reducing: Vec<f64>,
    estimate: Estimate,
    /// The activities so far, if requested.
    moments: Option<Vec<TimedActivity>>,
}

impl<'a> Clocks<'a> {
    fn new(graph: &'a ConflictGraph, sizes: Sizes<'a>, cost: Cost, world: usize) -> Self {
        let instances = graph.nodes.len() * sizes.windows;
        let first = graph.nodes.iter().map(|node| node.waits);
        let later = graph.nodes.iter().map(|node| node.waits + node.waits_across);
        let waits = first.chain((1..sizes.windows).flat_map(|_| later.clone())).collect();
        let estimate = Estimate {
            seconds: 0.0,
            finish: vec![0.0; world],
            messages: 0,
            bytes_sent: vec![0; world],
            bytes_reduced: vec![0; world],
        };
        Self {
            graph,
            sizes,
            cost,
            waits,
            ready: vec![0.0; instances],
            ended: vec![0.0; instances],
            events: BinaryHeap::new(),
            news: Vec::new(),
            out: vec![0.0; world],
            links: vec![0.0; if cost.ports == Ports::PerLink { world * world } else { 0 }],
            arriving: vec![0.0; world],
            reducing: vec![0.0; world],
            estimate,
            moments: None,
        }
    }

    /// Runs all nodes to their ends.
    fn run(mut self) -> Self {
        for id in (0..self.waits.len()).filter(|&id| self.waits[id] == 0).collect::<Vec<_>>() {
            self.start(id);
        }
        self.spread();
        while let Some(Reverse((time, id, what))) = self.events.pop() {
            let time = f64::from_bits(time);
            match what {
                NodeEvent::Ready => self.serve(id, time),
                NodeEvent::Head => self.arrive(id, time),
            }
            self.spread();
        }
        debug_assert!(
            self.waits.iter().all(|&waits| waits == 0),
            "what is walked in proof order completes"
        );
        self.estimate.seconds = self.estimate.finish.iter().copied().fold(0.0, f64::max);
        self
    }

    /// All nodes that `id` waited for have ended. A node without port and arithmetic ends
    /// immediately.
    fn start(&mut self, id: usize) {
        let time = self.ready[id];
        match self.node(id).kind {
            StepKind::Receive { reduces: false, .. } | StepKind::Local { reduces: false, .. } => {
                self.done(id, time)
            }
            StepKind::Message { .. }
            | StepKind::Receive { reduces: true, .. }
            | StepKind::Local { reduces: true, .. } => {
                self.events.push(Reverse((time.to_bits(), id, NodeEvent::Ready)));
            }
        }
    }

    fn serve(&mut self, id: usize, time: f64) {
        let rank = self.node(id).rank;
        let bytes = self.bytes(id);
        match self.node(id).kind {
            StepKind::Message { to } => self.leave(id, to, time),
            StepKind::Receive { .. } | StepKind::Local { .. } => {
                let start = time.max(self.reducing[rank]);
                let end = start + bytes as f64 * self.cost.gamma;
                self.reducing[rank] = end;
                self.estimate.bytes_reduced[rank] += bytes;
                self.note(PortActivity::Combines, id, (start, end));
                self.done(id, end);
            }
        }
    }

    fn leave(&mut self, id: usize, to: usize, time: f64) {
        let rank = self.node(id).rank;
        let bytes = self.bytes(id);
        let takes = bytes as f64 * self.cost.beta;
        self.estimate.messages += 1;
        self.estimate.bytes_sent[rank] += bytes;
        match self.cost.ports {
            Ports::PerLink => {
                let link = &mut self.links[rank * self.out.len() + to];
                let start = time.max(*link);
                let end = start + takes;
                let there = start + self.cost.alpha;
                *link = end;
                self.finish(rank, end);
                self.note(PortActivity::Sends, id, (start, end));
                self.note(PortActivity::Receives, id, (there, there + takes));
                self.news.push((id, there + takes));
            }
            Ports::Single => {
                let start = time.max(self.out[rank]);
                self.out[rank] = start + takes;
                self.finish(rank, start + takes);
                self.note(PortActivity::Sends, id, (start, start + takes));
                self.events.push(Reverse((
                    (start + self.cost.alpha).to_bits(),
                    id,
                    NodeEvent::Head,
                )));
            }
        }
    }

    fn arrive(&mut self, id: usize, time: f64) {
        let StepKind::Message { to } = self.node(id).kind else {
            unreachable!("only messages arrive")
        };
        let start = time.max(self.arriving[to]);
        let end = start + self.bytes(id) as f64 * self.cost.beta;
        self.arriving[to] = end;
        self.note(PortActivity::Receives, id, (start, end));
        self.news.push((id, end));
    }

    fn done(&mut self, id: usize, time: f64) {
        self.finish(self.node(id).rank, time);
        self.news.push((id, time));
    }

    fn finish(&mut self, rank: usize, time: f64) {
        self.estimate.finish[rank] = self.estimate.finish[rank].max(time);
    }

    /// Updates the successors of all nodes that have ended.
    fn spread(&mut self) {
        let nodes = self.graph.nodes.len();
        while let Some((id, time)) = self.news.pop() {
            self.ended[id] = time;
            let window = id / nodes;
            let node = id % nodes;
            for next in self.graph.within.of(node).iter().map(|next| *next as usize) {
                self.tell(window * nodes + next, time);
            }
            if window + 1 < self.sizes.windows {
                for next in self.graph.across.of(node).iter().map(|next| *next as usize) {
                    self.tell((window + 1) * nodes + next, time);
                }
            }
        }
    }

    fn tell(&mut self, id: usize, time: f64) {
        self.ready[id] = self.ready[id].max(time);
        self.waits[id] -= 1;
        if self.waits[id] == 0 {
            self.start(id);
        }
    }

    fn node(&self, id: usize) -> &'a GraphNode {
        &self.graph.nodes[id % self.graph.nodes.len()]
    }

    fn bytes(&self, id: usize) -> usize {
        self.sizes.bytes(self.graph.chunks(self.node(id)), id / self.graph.nodes.len())
    }
}
