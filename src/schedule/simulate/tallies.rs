//! Counts over all ranks' steps, which a run needs before it begins and does not change.

use super::machine::MachineModel;
use crate::schedule::conflict::{ConflictGraph, StepKind};

/// Up to this many streams, polling costs nothing: a poll of so few usually finds a message.
const FEW: u64 = 3;

/// Counts in one window.
pub(super) struct Tallies {
    /// By node: the first message with the same content if the node repeats a message, else the
    /// node itself.
    pub(super) original: Vec<u32>,
    /// By rank: its nodes.
    pub(super) nodes: Vec<u32>,
    /// By rank: receives that read its publications.
    pub(super) unread: Vec<u32>,
    /// By rank: windows whose messages the board can all hold. At least one, because lowering
    /// ensures that.
    pub(super) room: Vec<usize>,
    /// By rank: streams that it listens to, beyond the few that cost nothing.
    pub(super) polled: Vec<u64>,
}

impl Tallies {
    pub(super) fn new(graph: &ConflictGraph, machine: &MachineModel<'_>, world: usize) -> Self {
        let mut original = Vec::with_capacity(graph.nodes.len());
        let mut nodes = vec![0; world];
        let mut unread = vec![0; world];
        let mut messages = vec![0; world];
        let mut streams = vec![0_u64; world];
        // Nodes are in the order of their ranks. By peer: the last rank that listens to it.
        let mut listener = vec![usize::MAX; world];
        for (at, node) in graph.nodes.iter().enumerate() {
            let repeated = original.last().copied().filter(|_| node.again);
            original.push(repeated.unwrap_or(at as u32));
            nodes[node.rank] += 1;
            match node.kind {
                StepKind::Receive { from, .. } if machine.near(from, node.rank) => {
                    unread[from] += 1
                }
                StepKind::Receive { from, .. } => {
                    let is_new = std::mem::replace(&mut listener[from], node.rank) != node.rank;
                    streams[node.rank] += u64::from(is_new);
                }
                StepKind::Message { to } if !node.again && machine.near(node.rank, to) => {
                    messages[node.rank] += node.moves();
                }
                StepKind::Message { .. } | StepKind::Local { .. } => {}
            }
        }
        let room = messages.iter().map(|messages| (machine.slots / messages.max(&1)).max(1));
        let polled = streams.iter().map(|streams| streams.saturating_sub(FEW));
        Self { original, nodes, unread, room: room.collect(), polled: polled.collect() }
    }
}
