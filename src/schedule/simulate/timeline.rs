//! The activities of a simulation, as a trace.

use super::{Clocks, ConflictGraph, Cost, Estimate, Sizes, StepOrder};
use crate::schedule::conflict::StepKind;
use crate::schedule::trace::{self, ArrowEnd, Fact, Slice, Trace, TraceLane, digit};
use crate::schedule::walk::Stuck;
use crate::schedule::{Layout, Schedule};
use std::collections::BTreeMap;

/// An activity of a rank, with its times in seconds.
#[derive(Debug)]
pub(super) struct TimedActivity {
    pub(super) part: PortActivity,
    pub(super) rank: usize,
    /// The other end of the message; the rank itself if there is none.
    pub(super) peer: usize,
    pub(super) step: usize,
    pub(super) window: usize,
    pub(super) bytes: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    /// A number that no other message has.
    pub(super) id: usize,
}

/// The part of a rank that is busy.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum PortActivity {
    Sends,
    Receives,
    Combines,
}

impl PortActivity {
    fn name(self) -> &'static str {
        match self {
            Self::Sends => "sends",
            Self::Receives => "receives",
            Self::Combines => "combines",
        }
    }

    fn kind(self) -> trace::SliceKind {
        match self {
            Self::Sends => trace::SliceKind::Send,
            Self::Receives => trace::SliceKind::Receive,
            Self::Combines => trace::SliceKind::Combine,
        }
    }
}

/// [`simulate`](super::simulate) with a trace. A rank has a lane for sending, one for receiving and
/// one for combining, because it does these at the same time, and more lanes where links have ports
/// of their own. A message is two slices: one in the sender's lane while it occupies the sender's
/// port, and one in the receiver's lane while it arrives.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole::schedule::simulate::{Cost, Ports, timeline};
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 2).unwrap();
/// let cost = Cost { alpha: 1e-6, beta: 1e-9, gamma: 0.0, ports: Ports::Single };
/// let (_, trace) = timeline(&ring, &Layout::even(4000, 2), 1, 1, cost).unwrap();
/// assert_eq!(maypole::schedule::trace::text(&trace, 12), "
///                  0           6000 ns
/// rank 0 sends     |111..|111..
///        receives  ..|111..|111
/// rank 1 sends     |000..|000..
///        receives  ..|000..|000
/// ".trim_start_matches('\n'));
/// ```
///
/// # Errors
/// As [`simulate`](super::simulate).
///
/// # Panics
/// As [`simulate`](super::simulate).
pub fn timeline(
    schedules: &[Schedule],
    layout: &Layout,
    element_bytes: usize,
    windows: usize,
    cost: Cost,
) -> Result<(Estimate, Trace), Stuck> {
    super::check(schedules, layout, windows);
    let graph = ConflictGraph::new(StepOrder::Conflict, schedules)?;
    let sizes = Sizes { layout, element_bytes, windows };
    let mut clocks = Clocks::new(&graph, sizes, cost, schedules.len());
    clocks.moments = Some(Vec::new());
    let clocks = clocks.run();
    Ok((clocks.estimate, traced(clocks.moments.unwrap_or_default())))
}

/// By rank, step and window: the second at which [`simulate`](super::simulate) has the step ended. A
/// send ends when its receiver has all bytes.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole::schedule::simulate::{Cost, Ports, step_ends};
/// let chain = Algorithm::Ring.schedules(Collective::Broadcast { root: 0 }, 3).unwrap();
/// let cost = Cost { alpha: 0.0, beta: 1.0, gamma: 0.0, ports: Ports::Single };
/// let ends = step_ends(&chain, &Layout::even(8, 1), 1, 2, cost).unwrap();
/// // Rank 1 receives four bytes in each window, and passes them on while the next window arrives.
/// assert_eq!(ends[1], [vec![4.0, 8.0], vec![8.0, 12.0]]);
/// ```
///
/// # Errors
/// As [`simulate`](super::simulate).
///
/// # Panics
/// As [`simulate`](super::simulate).
pub fn step_ends(
    schedules: &[Schedule],
    layout: &Layout,
    element_bytes: usize,
    windows: usize,
    cost: Cost,
) -> Result<Vec<Vec<Vec<f64>>>, Stuck> {
    super::check(schedules, layout, windows);
    let graph = ConflictGraph::new(StepOrder::Conflict, schedules)?;
    let sizes = Sizes { layout, element_bytes, windows };
    let clocks = Clocks::new(&graph, sizes, cost, schedules.len()).run();
    let of_node = |node: &usize| {
        let ends = clocks.ended.iter().skip(*node).step_by(graph.nodes.len());
        ends.copied().collect()
    };
    Ok(graph.node_of.iter().map(|nodes| nodes.iter().map(of_node).collect()).collect())
}

impl Clocks<'_> {
    /// Records an activity of node `id`, if a trace is asked for.
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

fn traced(mut moments: Vec<TimedActivity>) -> Trace {
    moments.retain(|moment| moment.part != PortActivity::Combines || moment.end > moment.start);
    moments.sort_by(|a, b| a.start.total_cmp(&b.start));
    // By rank, activity and level: the end of the lane's last slice, and its activities.
    let mut lanes: BTreeMap<(usize, PortActivity, usize), (u64, Vec<TimedActivity>)> =
        BTreeMap::new();
    for moment in moments {
        let start = nanoseconds(moment.start);
        let end = nanoseconds(moment.end);
        let level = |level: &usize| {
            let lane = lanes.get(&(moment.rank, moment.part, *level));
            lane.is_none_or(|(until, _)| *until <= start)
        };
        let level = (0..).find(level).expect("there are enough numbers");
        let lane = lanes.entry((moment.rank, moment.part, level)).or_default();
        lane.0 = end;
        lane.1.push(moment);
    }
    let mut trace = Trace::default();
    for ((rank, part, level), (_, moments)) in lanes {
        let lane = trace.lanes.len();
        trace.lanes.push(TraceLane {
            process: 1,
            process_name: "simulated".to_owned(),
            thread: lane as u64 + 1,
            owner: format!("rank {rank}"),
            part: if level == 0 {
                part.name().to_owned()
            } else {
                format!("{} {}", part.name(), level + 1)
            },
        });
        trace.slices.extend(moments.iter().map(|moment| moment.slice(lane)));
        trace.ends.extend(moments.iter().filter_map(|moment| moment.arrow(lane)));
    }
    trace
}

impl TimedActivity {
    fn slice(&self, lane: usize) -> Slice {
        let Self { part, peer, step, window, bytes, .. } = *self;
        let (name, mark) = match part {
            PortActivity::Sends => (format!("send to {peer}"), digit(peer)),
            PortActivity::Receives => (format!("receive from {peer}"), digit(peer)),
            PortActivity::Combines => ("combine".to_owned(), '+'),
        };
        let number = |number: usize| Fact::Number(number as u64);
        let facts = vec![
            ("bytes", number(bytes)),
            ("peer", number(peer)),
            ("step", number(step)),
            ("window", number(window)),
        ];
        let start = nanoseconds(self.start);
        let end = nanoseconds(self.end);
        Slice { lane, kind: part.kind(), name, start, end, mark, facts }
    }

    fn arrow(&self, lane: usize) -> Option<ArrowEnd> {
        let points_here = self.part == PortActivity::Receives;
        let at = nanoseconds(self.start);
        (self.part != PortActivity::Combines).then_some(ArrowEnd {
            message: self.id as u64,
            lane,
            at,
            points_here,
        })
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
