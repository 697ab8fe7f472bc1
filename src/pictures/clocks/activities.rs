//! The activities of each rank in a simulation, with their times.

use super::{Clocks, Cost, Estimate, Sizes};
use maypole::schedule::conflict::{ConflictGraph, StepKind, StepOrder};
use maypole::schedule::walk::Stuck;
use maypole::schedule::{Layout, Schedule};

/// An activity of a rank, with its times in seconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimedActivity {
    /// The part of the rank that is busy.
    pub part: PortActivity,
    /// The rank that is busy.
    pub rank: usize,
    /// The other end of the message; the rank itself if there is none.
    pub peer: usize,
    /// The number of the step. A message that arrives has that of its sender's.
    pub step: usize,
    /// The window whose bytes move.
    pub window: usize,
    /// How many bytes move.
    pub bytes: usize,
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// A number that no other message has. The two ends of a message have the same.
    pub id: usize,
}

/// The part of a rank that is busy. A rank of the model has no other part, so a match needs no other arm.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PortActivity {
    /// A message leaves.
    Sends,
    /// A message arrives.
    Receives,
    /// Elements are combined.
    Combines,
}

/// A simulation and all of its activities.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimulationRecord {
    /// The result of [`simulate`](super::simulate).
    pub estimate: Estimate,
    /// The activities of ranks, in any order. A message is two activities: one while it occupies
    /// its sender's port, and one while it arrives.
    pub activities: Vec<TimedActivity>,
    /// By rank, step and window: the second at which the step has ended. A send ends when its receiver has
    /// all bytes.
    pub ends: Vec<Vec<Vec<f64>>>,
}

/// [`simulate`](super::simulate), with all activities.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole_pictures::clocks::{Cost, Ports, activities};
/// let chain = Algorithm::Ring.schedules(Collective::Broadcast { root: 0 }, 3).unwrap();
/// let cost = Cost { alpha: 0.0, beta: 1.0, gamma: 0.0, ports: Ports::Single };
/// let run = activities(&chain, &Layout::even(8, 1), 1, 2, cost).unwrap();
/// // Rank 1 receives four bytes in each window, and passes them on while the next window arrives.
/// assert_eq!(run.ends[1], [vec![4.0, 8.0], vec![8.0, 12.0]]);
/// // Two messages in two windows, each with two ends.
/// assert_eq!(run.activities.len(), 2 * 2 * 2);
/// ```
///
/// # Errors
/// As [`simulate`](super::simulate).
///
/// # Panics
/// As [`simulate`](super::simulate).
pub fn activities(
    schedules: &[Schedule],
    layout: &Layout,
    element_bytes: usize,
    windows: usize,
    cost: Cost,
) -> Result<SimulationRecord, Stuck> {
    super::check(schedules, layout, windows);
    let graph = ConflictGraph::new(StepOrder::Conflict, schedules)?;
    let sizes = Sizes { layout, element_bytes, windows };
    let mut clocks = Clocks::new(&graph, sizes, cost, schedules.len());
    clocks.moments = Some(Vec::new());
    let Clocks { estimate, moments, ended, .. } = clocks.run();
    let of_node = |node: &usize| {
        let ends = ended.iter().skip(*node).step_by(graph.nodes.len());
        ends.copied().collect()
    };
    let ends = graph.node_of.iter().map(|nodes| nodes.iter().map(of_node).collect()).collect();
    Ok(SimulationRecord { estimate, activities: moments.unwrap_or_default(), ends })
}

impl Clocks<'_> {
    /// Records an activity of node `id`, if a trace is requested.
    pub(super) fn note(&mut self, part: PortActivity, id: usize, (start, end): (f64, f64)) {
        let Some(moments) = &mut self.moments else { return };
        let node = &self.graph.nodes[id % self.graph.nodes.len()];
        let window = id / self.graph.nodes.len();
        let (rank, peer) = match (part, node.kind) {
            (PortActivity::Receives, StepKind::Message { to }) => (to, node.rank),
            (_, StepKind::Message { to }) => (node.rank, to),
            (_, StepKind::Receive { from, .. }) => (node.rank, from),
            (_, StepKind::Local { .. }) => (node.rank, node.rank),
        };
        let bytes = self.sizes.bytes(self.graph.chunks(node), window);
        moments.push(TimedActivity {
            part,
            rank,
            peer,
            step: node.step,
            window,
            bytes,
            start,
            end,
            id,
        });
    }
}
