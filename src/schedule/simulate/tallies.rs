//! Counts over all ranks' steps, which a run needs before it begins and does not change.

use super::machine::MachineModel;
use crate::schedule::conflict::{ConflictGraph, StepKind};

/// Up to this many streams, polling costs nothing: a poll of so few usually finds a message.
const FEW: u64 = 3;

/// For each node: the first message with the same content if the node repeats a message, else the
/// node itself.
pub(super) fn carriers(graph: &ConflictGraph) -> Vec<u32> {
    let mut last = 0;
    let first = graph.nodes.iter().enumerate().map(|(at, node)| {
        last = if node.again { last } else { at as u32 };
        last
    });
    first.collect()
}

/// For each rank, the number of receives that read its publications of a window.
pub(super) fn unread(graph: &ConflictGraph, machine: &MachineModel<'_>, world: usize) -> Vec<u32> {
    let mut unread = vec![0; world];
    for node in &graph.nodes {
        match node.kind {
            StepKind::Receive { from, .. } if machine.near(from, node.rank) => unread[from] += 1,
            _ => {}
        }
    }
    unread
}

/// For each rank, the number of windows whose messages the board can all hold. It is at least one,
/// because lowering ensures that.
pub(super) fn room(graph: &ConflictGraph, machine: &MachineModel<'_>, world: usize) -> Vec<usize> {
    let mut messages = vec![0; world];
    for node in &graph.nodes {
        match node.kind {
            StepKind::Message { to } if !node.again && machine.near(node.rank, to) => {
                messages[node.rank] += node.moves()
            }
            _ => {}
        }
    }
    messages.into_iter().map(|messages| (machine.slots / messages.max(1)).max(1)).collect()
}

/// For each rank, how many streams it listens to beyond the few that cost nothing.
pub(super) fn polled(graph: &ConflictGraph, machine: &MachineModel<'_>, world: usize) -> Vec<u64> {
    let mut polled = vec![0u64; world];
    // Nodes are in the order of their ranks. By peer: the last rank that listens to it.
    let mut listener = vec![usize::MAX; world];
    for node in &graph.nodes {
        if let StepKind::Receive { from, .. } = node.kind
            && !machine.near(from, node.rank)
            && std::mem::replace(&mut listener[from], node.rank) != node.rank
        {
            polled[node.rank] += 1;
        }
    }
    polled.into_iter().map(|streams| streams.saturating_sub(FEW)).collect()
}
