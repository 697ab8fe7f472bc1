//! Conflict order: the steps that each step waits for, in its own window and in the one before.
//!
//! The second reading of the law (the first is [`walk`]). A step waits only for earlier steps of
//! its rank that use the same link in the same direction or touch the same span where one of the
//! two writes; and a receive waits for its message. Simulators run clocks over this graph, and
//! `maypole-pictures` counts rounds along it, so that all agree.

mod tracks;

use crate::labels;
use crate::schedule::walk::{Meaning, Stuck, walk};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};
use tracks::Tracks;

/// The order in which steps are taken. Schedules that complete in one order complete in the other.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum StepOrder {
    /// A step waits only for the steps that it conflicts with. Executors run in this order.
    Conflict,
    /// A step waits for all steps before it in the list, window after window. Proofs use this
    /// order.
    List,
}

/// A step, or several sends that are one message.
#[derive(Debug)]
#[non_exhaustive]
pub struct GraphNode {
    /// Its rank.
    pub rank: usize,
    /// Its kind.
    pub kind: StepKind,
    /// The step of its rank's schedule, or the first of them.
    pub step: usize,
    /// `chunks[chunks.0..chunks.1]` of the graph are those that it moves, for their lengths.
    chunks: (u32, u32),
    /// True for a message that carries the same span as the message before it, to another rank.
    pub(super) again: bool,
    /// True for a message whose content its sender has received or combined in this window.
    pub(super) relays: bool,
    /// True for a receive that combines its message with content that the rank has received or
    /// combined in this window.
    pub(super) joins: bool,
    /// For a receive, the message that it takes.
    pub(super) takes: usize,
    /// The number of nodes that it waits for in its own window.
    pub waits: u32,
    /// The number of nodes that it waits for in the window before.
    pub waits_across: u32,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StepKind {
    /// A message; it ends when it has arrived.
    Message {
        /// The rank that it goes to.
        to: usize,
    },
    /// A rank takes a message.
    Receive {
        /// The sending rank.
        from: usize,
        /// True if the message is combined with the contents of its span.
        reduces: bool,
    },
    /// A rank copies, or combines its own spans.
    Local {
        /// True if it combines.
        reduces: bool,
        /// True if it reads scratch.
        scratch: bool,
    },
}

impl GraphNode {
    /// How many chunks it moves.
    pub(super) fn moves(&self) -> usize {
        (self.chunks.1 - self.chunks.0) as usize
    }
}

impl StepKind {
    /// True if the node spends time on the bytes of its chunks. Copies do not, because executors
    /// fuse them away; messages do not, because they only refer to bytes in place.
    fn works(self) -> bool {
        matches!(self, Self::Receive { .. } | Self::Local { reduces: true, .. })
    }
}

/// For each node, those that wait for it.
#[derive(Debug)]
pub struct Successors {
    /// `to[starts[n]..starts[n + 1]]` wait for node `n`.
    starts: Vec<u32>,
    to: Vec<u32>,
}

/// One node waits for another: (the one before, the one that waits).
type Edge = (u32, u32);

impl Successors {
    fn new(nodes: usize, edges: &[Edge]) -> Self {
        let edges = edges.iter().map(|&(from, next)| (from as usize, next));
        let (starts, to) = labels::sorted(nodes, edges);
        Self { starts, to }
    }

    /// The nodes that wait for `node`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn of(&self, node: usize) -> &[u32] {
        &self.to[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// All ranks' steps, and which of them wait for which.
///
/// ```
/// use maypole::schedule::conflict::{ConflictGraph, StepOrder};
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
/// let chain = Algorithm::Ring.schedules(Collective::Broadcast { root: 0 }, 3).unwrap();
/// let graph = ConflictGraph::new(StepOrder::Conflict, &chain).unwrap();
/// // Rank 1 sends on what it has received.
/// let [receive, send] = [0, 1].map(|step| graph.node_of[1][step]);
/// assert!(graph.within.of(receive).contains(&(send as u32)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ConflictGraph {
    /// The steps of all ranks; several sends may be one message.
    pub nodes: Vec<GraphNode>,
    /// The chunks that all nodes move.
    chunks: Vec<usize>,
    /// By rank and step: the node that the step is part of.
    pub node_of: Vec<Vec<usize>>,
    /// By rank and step: for a send, the rank and step that receive its message.
    pub received_by: Vec<Vec<Option<(usize, usize)>>>,
    /// From a node to nodes of the same window.
    pub within: Successors,
    /// From a node to nodes of the next window.
    pub across: Successors,
}

impl ConflictGraph {
    /// The graph of `schedules`, one a rank.
    ///
    /// # Errors
    /// [`Stuck`] if the steps cannot all be taken.
    pub fn new(order: StepOrder, schedules: &[Schedule]) -> Result<Self, Stuck> {
        let mut matches = Matches::new(schedules);
        walk(schedules, Placement::Apart, &mut matches)?;
        Ok(Self::of_matched(order, schedules, matches))
    }

    /// The graph of the steps that can be taken: those of each rank before the first that waits
    /// indefinitely.
    ///
    /// # Panics
    /// If a step names a rank outside the world.
    pub fn of_taken(order: StepOrder, schedules: &[Schedule]) -> Self {
        let mut matches = Matches::new(schedules);
        let stuck = walk(schedules, Placement::Apart, &mut matches).err();
        let mut taken = schedules.to_vec();
        for (rank, step) in stuck.into_iter().flat_map(|stuck| stuck.waiting) {
            taken[rank].steps.truncate(step);
        }
        Self::of_matched(order, &taken, matches)
    }

    fn of_matched(order: StepOrder, schedules: &[Schedule], matches: Matches) -> Self {
        let mut builder = GraphBuilder::new(schedules);
        let mut tracks = Tracks::default();
        for (rank, schedule) in schedules.iter().enumerate() {
            tracks.begin(schedule, schedules.len());
            for (nth, &step) in schedule.steps.iter().enumerate() {
                builder.conflicts(&mut tracks, (rank, nth), step, &matches);
            }
            match order {
                StepOrder::Conflict => {}
                StepOrder::List => builder.list(rank, schedule),
            }
        }
        builder.end(matches)
    }

    /// The chunks that `node` of this graph moves.
    ///
    /// # Panics
    /// If the node is of another graph with more steps.
    pub fn chunks(&self, node: &GraphNode) -> &[usize] {
        &self.chunks[node.chunks.0 as usize..node.chunks.1 as usize]
    }
}

/// Which send each receive takes.
struct Matches {
    /// By rank and step: for a send, the rank and step that receive its message.
    received_by: Vec<Vec<Option<(usize, usize)>>>,
}

impl Matches {
    fn new(schedules: &[Schedule]) -> Self {
        let none = |schedule: &Schedule| vec![None; schedule.steps.len()];
        Self { received_by: schedules.iter().map(none).collect() }
    }
}

impl Meaning for Matches {
    type Message = usize;

    fn send(&mut self, _: usize, step: usize, _: Span, _: usize) -> usize {
        step
    }

    fn receive(&mut self, rank: usize, step: usize, _: Span, from: usize, message: usize, _: bool) {
        self.received_by[from][message] = Some((rank, step));
    }

    fn local(&mut self, _: usize, _: usize, _: Span, _: Span, _: bool) {}
}

struct GraphBuilder {
    nodes: Vec<GraphNode>,
    chunks: Vec<usize>,
    /// By rank and step: the node that the step is part of.
    node_of: Vec<Vec<usize>>,
    within: Vec<Edge>,
    across: Vec<Edge>,
}

impl GraphBuilder {
    /// The nodes, without the edges between them.
    fn new(schedules: &[Schedule]) -> Self {
        let steps = schedules.iter().map(|schedule| schedule.steps.len()).sum();
        let mut builder = Self {
            nodes: Vec::with_capacity(steps),
            chunks: Vec::with_capacity(steps),
            node_of: Vec::with_capacity(schedules.len()),
            within: Vec::with_capacity(3 * steps),
            across: Vec::with_capacity(steps),
        };
        for (rank, schedule) in schedules.iter().enumerate() {
            let mut before = None;
            let nodes = schedule.steps.iter().enumerate().map(|(nth, &step)| {
                builder.node((rank, nth), step, schedule.chunks.max(1), before.replace(step));
                builder.nodes.len() - 1
            });
            let nodes = nodes.collect();
            builder.node_of.push(nodes);
        }
        builder
    }

    fn node(
        &mut self,
        (rank, nth): (usize, usize),
        step: Step,
        chunks: usize,
        before: Option<Step>,
    ) {
        let (kind, span) = match step {
            Step::Send { from, to } => (StepKind::Message { to }, from),
            Step::Recv { into, from } => (StepKind::Receive { from, reduces: false }, into),
            Step::RecvReduce { into, from } => (StepKind::Receive { from, reduces: true }, into),
            Step::Copy { from, into } | Step::Reduce { from, into } => {
                let reduces = matches!(step, Step::Reduce { .. });
                (StepKind::Local { reduces, scratch: from.buffer == Buffer::Scratch }, into)
            }
        };
        let before = match (step, before) {
            (Step::Send { .. }, Some(Step::Send { from, to })) => {
                Some((from, StepKind::Message { to }))
            }
            _ => None,
        };
        let place = self.chunks.len() as u32;
        self.chunks.push(span.chunk % chunks);
        match self.nodes.last_mut().filter(|_| before.is_some_and(|(_, message)| message == kind)) {
            Some(message) => message.chunks.1 += 1,
            None => self.nodes.push(GraphNode {
                rank,
                kind,
                step: nth,
                chunks: (place, place + 1),
                again: before.is_some_and(|(sent, _)| sent == span),
                relays: false,
                joins: false,
                takes: usize::MAX,
                waits: 0,
                waits_across: 0,
            }),
        }
    }

    /// Adds the edges of `step`: it waits for earlier steps on its link, and for those whose span
    /// overlaps its own where one of the two writes.
    fn conflicts(
        &mut self,
        tracks: &mut Tracks,
        (rank, nth): (usize, usize),
        step: Step,
        matches: &Matches,
    ) {
        let node = self.node_of[rank][nth];
        let taken = matches.received_by[rank][nth].map(|(peer, step)| self.node_of[peer][step]);
        if let Some(taken) = taken {
            self.nodes[taken].takes = node;
        }
        let sends = matches!(step, Step::Send { .. });
        let links = if sends { &mut tracks.sent } else { &mut tracks.received };
        let this = node as u32;
        let before = step.peer().and_then(|peer| links[peer].replace(this));
        self.within.extend(before.filter(|&before| before != this).map(|before| (before, this)));
        self.within.extend(taken.map(|taken| (this, taken as u32)));
        for span in step.reads() {
            let span = tracks.index(span);
            let writer = tracks.written[span].map(|writer| self.nodes[writer as usize].kind);
            let works = writer.is_some_and(StepKind::works);
            self.nodes[node].relays |= works && sends;
            self.nodes[node].joins |= works && matches!(step, Step::RecvReduce { .. });
            self.within.extend(tracks.written[span].map(|writer| (writer, this)));
            // A sent span may be overwritten once its receiver has taken it.
            tracks.add_reader(span, taken.map_or(this, |taken| taken as u32));
        }
        if let Some(span) = step.writes() {
            let span = tracks.index(span);
            self.within.extend(tracks.written[span].replace(this).map(|writer| (writer, this)));
            let readers = tracks.take_readers(span).filter(|&reader| reader != this);
            self.within.extend(readers.map(|reader| (reader, this)));
        }
    }

    /// Adds the edges of list order: a step waits for the last step before it that is not a send,
    /// because sends do not wait. The first steps of a window wait for the last such step of the
    /// window before.
    fn list(&mut self, rank: usize, schedule: &Schedule) {
        let waits = |step: &Step| !matches!(step, Step::Send { .. });
        let last = schedule.steps.iter().rposition(waits).map(|nth| self.node_of[rank][nth] as u32);
        let mut before = None;
        for (nth, step) in schedule.steps.iter().enumerate() {
            let node = self.node_of[rank][nth] as u32;
            match before {
                Some(before) => self.within.push((before, node)),
                None => self.across.extend(last.map(|last| (last, node))),
            }
            if waits(step) {
                before = Some(node);
            }
        }
    }

    fn end(mut self, matches: Matches) -> ConflictGraph {
        let on_a_link = |node: &usize| !matches!(self.nodes[*node].kind, StepKind::Local { .. });
        let on_links = (0..self.nodes.len()).filter(on_a_link).map(|node| node as u32);
        self.across.extend(on_links.map(|node| (node, node)));
        for &(_, node) in &self.within {
            self.nodes[node as usize].waits += 1;
        }
        for &(_, node) in &self.across {
            self.nodes[node as usize].waits_across += 1;
        }
        let count = self.nodes.len();
        ConflictGraph {
            within: Successors::new(count, &self.within),
            across: Successors::new(count, &self.across),
            nodes: self.nodes,
            chunks: self.chunks,
            node_of: self.node_of,
            received_by: matches.received_by,
        }
    }
}
