//! Cores that take turns: the run of a [`MachineModel`], event by event.

use super::SHORT_MESSAGES_TOGETHER;
use super::machine::{MachineModel, RunTime};
use super::tallies::Tallies;
use crate::schedule::conflict::{ConflictGraph, GraphNode, StepKind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cost of a KiB that is in the core's own cache, as a fraction of the cost of a KiB in another
/// core's cache.
const WARM: (u64, u64) = (1, 3);

/// Cost of each further source of a fold, as a fraction of the cost of the first source.
const JOINED: (u64, u64) = (2, 3);

/// Cost of a message that was received ahead, as a fraction of the cost to receive it by itself.
const AHEAD: (u64, u64) = (1, 16);

/// A core and its ranks.
struct Core {
    ranks: Vec<usize>,
    /// The index of the rank that it runs.
    current: usize,
    busy: bool,
    worked: u64,
}

/// This bit is set in the number of a core, not in that of a node.
const CORE: u64 = 1 << 63;

/// A node that is ready, or a core that is free, and the time, in one number: so one comparison orders
/// events by time, then nodes before cores, each by number.
fn event(time: u64, number: u64) -> Reverse<u128> {
    Reverse(u128::from(time) << 64 | u128::from(number))
}

/// Nodes that wait until all of something has ended.
#[derive(Clone, Default)]
struct Gate {
    left: u32,
    waiting: Vec<u32>,
}

/// How much is run.
#[derive(Clone, Copy)]
pub(super) struct RunLength {
    pub(super) world: usize,
    pub(super) calls: usize,
    pub(super) windows: usize,
    pub(super) bytes: u64,
}

pub(super) struct Turns<'a> {
    graph: &'a ConflictGraph,
    machine: &'a MachineModel<'a>,
    length: RunLength,
    tallies: Tallies,
    waits: Vec<u32>,
    /// By node: the earliest time at which it can run, by the events so far.
    available: Vec<u64>,
    /// By publication: whether it is on the board.
    published: Vec<bool>,
    /// By publication: one bit for each core that has read it.
    cached_by: Vec<u64>,
    cores: Vec<Core>,
    /// By rank: nodes that are ready to run.
    ready: Vec<BinaryHeap<Reverse<u32>>>,
    /// By the two ranks of a stream, from and to: when the receiver last read from it.
    reads: Vec<u64>,
    /// By call and rank: its nodes that have not ended, and the nodes of the next call that wait for
    /// them. Then by window and rank: receives that have not yet read the rank's publication, and
    /// messages that wait for a slot.
    gates: Vec<Gate>,
    events: BinaryHeap<Reverse<u128>>,
    end: u64,
}

impl<'a> Turns<'a> {
    pub(super) fn new(
        graph: &'a ConflictGraph,
        machine: &'a MachineModel<'a>,
        length: RunLength,
    ) -> Self {
        let RunLength { world, calls, windows, .. } = length;
        let nodes = graph.nodes.len();
        let mut waits = Vec::with_capacity(calls * windows * nodes);
        waits.extend(graph.nodes.iter().map(|node| node.waits));
        for _ in 1..windows {
            waits.extend(graph.nodes.iter().map(|node| node.waits + node.waits_across));
        }
        for _ in 1..calls {
            waits.extend_from_within(..windows * nodes);
        }
        let count = world.div_ceil(machine.crowding.max(1));
        let ranks_of = |core| (core..world).step_by(count).collect();
        let tallies = Tallies::new(graph, machine, world);
        let unfinished = tallies.nodes.iter().map(|nodes| nodes * windows as u32).cycle();
        let unread = tallies.unread.iter().copied().cycle();
        let gates = unfinished.take(calls * world).chain(unread.take(calls * windows * world));
        Self {
            graph,
            machine,
            length,
            gates: gates.map(|left| Gate { left, waiting: Vec::new() }).collect(),
            tallies,
            available: vec![0; waits.len()],
            published: vec![false; waits.len()],
            cached_by: vec![0; waits.len()],
            waits,
            cores: (0..count)
                .map(|core| Core { ranks: ranks_of(core), current: 0, busy: false, worked: 0 })
                .collect(),
            ready: vec![BinaryHeap::new(); world],
            reads: vec![0; world * world],
            events: BinaryHeap::new(),
            end: 0,
        }
    }

    pub(super) fn run(mut self) -> RunTime {
        for id in (0..self.waits.len()).filter(|&id| self.waits[id] == 0).collect::<Vec<_>>() {
            self.offer(id);
        }
        while let Some(Reverse(event)) = self.events.pop() {
            let now = (event >> 64) as u64;
            let number = event as u64;
            let id = (number & !CORE) as usize;
            if number & CORE != 0 {
                self.turn(id, now);
            } else if self.is_free(id) {
                self.done(id, now);
            } else {
                let rank = self.node(id).rank;
                self.ready[rank].push(Reverse(id as u32));
                let core = rank % self.cores.len();
                if !self.cores[core].busy {
                    self.turn(core, now);
                }
            }
        }
        RunTime {
            end: self.end,
            busiest: self.cores.iter().map(|core| core.worked).max().unwrap_or(0),
        }
    }

    /// True if the node is fused with the messages around it: a local step on input and output alone.
    fn is_free(&self, id: usize) -> bool {
        matches!(self.node(id).kind, StepKind::Local { scratch: false, .. })
    }

    /// Lets the core continue with its rank, or with its next rank that has a node to run.
    fn turn(&mut self, at: usize, now: u64) {
        let core = &mut self.cores[at];
        let turns = core.ranks.len();
        let has_ready =
            |turn: &usize| !self.ready[core.ranks[(core.current + turn) % turns]].is_empty();
        let next = (0..turns).find(has_ready);
        core.busy = next.is_some();
        let Some(turn) = next else { return };
        core.current = (core.current + turn) % turns;
        let Reverse(id) =
            self.ready[core.ranks[core.current]].pop().expect("its queue is not empty");
        let id = id as usize;
        let start = now + turn as u64 * self.machine.switch;
        let end = start + self.takes(id, at, start);
        self.cores[at].worked += end - now;
        self.events.push(event(end, at as u64 | CORE));
        self.done(id, end);
    }

    /// How long the node occupies its core from `start` on.
    fn takes(&mut self, id: usize, core: usize, start: u64) -> u64 {
        let node = self.node(id);
        let chunks = node.moves() as u64;
        let bytes = chunks * self.length.bytes;
        match node.kind {
            StepKind::Message { to } => {
                let publication = self.publication(id);
                if self.machine.near(node.rank, to)
                    && std::mem::replace(&mut self.published[publication], true)
                {
                    return 0;
                }
                let link = self.machine.link(node.rank, to);
                // Content that was just received or combined is published while it is in the
                // core's registers.
                let relayed = node.relays && self.machine.near(node.rank, to);
                let rate = if relayed { link.post_kib * WARM.0 / WARM.1 } else { link.post_kib };
                // Each chunk is a publication of its own. On a stream, short messages leave together.
                let near = self.machine.near(node.rank, to);
                let posts = match near || self.length.bytes > self.machine.ahead {
                    true => chunks,
                    false => bytes.div_ceil(SHORT_MESSAGES_TOGETHER * self.machine.ahead).max(1),
                };
                posts * link.post + kib(bytes, rate)
            }
            StepKind::Receive { from, reduces } => {
                let link = self.machine.link(from, node.rank);
                let rate = match reduces {
                    // This is one more source of a fold whose result is written once.
                    true if node.joins => link.fold_kib * JOINED.0 / JOINED.1,
                    true => link.fold_kib,
                    false => link.copy_kib,
                };
                match self.machine.near(from, node.rank) {
                    true => chunks * link.take + kib(bytes, self.rate(id, core, rate)),
                    false => self.receives(id, from, start) + kib(bytes, rate),
                }
            }
            StepKind::Local { scratch: false, .. } => 0,
            // The bytes were just read or written, so they are in the core's cache.
            StepKind::Local { .. } => kib(bytes, self.machine.board.fold_kib * WARM.0 / WARM.1),
        }
    }

    /// How long it takes from `start` on to receive the chunks of message `id` over a stream,
    /// whatever their length. One read takes all short messages that have arrived.
    fn receives(&mut self, id: usize, from: usize, start: u64) -> u64 {
        let node = self.node(id);
        let link = self.machine.link(from, node.rank);
        let alone = link.take + self.tallies.polled[node.rank] * link.look;
        let chunks = node.moves() as u64;
        if self.length.bytes > self.machine.ahead {
            return chunks * alone;
        }
        let message = id - id % self.graph.nodes.len() + node.takes;
        let read = &mut self.reads[from * self.length.world + node.rank];
        let ahead = alone * AHEAD.0 / AHEAD.1;
        // Messages that arrived after the last read are read now.
        match self.available[message] > *read {
            true => {
                *read = start;
                alone + (chunks - 1) * ahead
            }
            false => chunks * ahead,
        }
    }

    /// The rate at which `core` reads the message that `id` takes. Records that the message is in
    /// the core's cache afterwards.
    fn rate(&mut self, id: usize, core: usize, cold: u64) -> u64 {
        let nodes = self.graph.nodes.len();
        let publication = self.publication(id - id % nodes + self.node(id).takes);
        let warm = self.cached_by[publication] & bit(core) != 0 && !self.machine.reads_again;
        self.cached_by[publication] |= bit(core);
        if warm { cold * WARM.0 / WARM.1 } else { cold }
    }

    /// The first message with the content of message `id`.
    fn publication(&self, id: usize) -> usize {
        let nodes = self.graph.nodes.len();
        id - id % nodes + self.tallies.original[id % nodes] as usize
    }

    /// `id` ends at `time`. A receive waits until its message has arrived.
    fn done(&mut self, id: usize, time: u64) {
        self.end = self.end.max(time);
        let nodes = self.graph.nodes.len();
        let window = id / nodes;
        let at = id % nodes;
        let node = self.node(id);
        let seen = match node.kind {
            StepKind::Message { to } => time + self.machine.link(node.rank, to).latency,
            StepKind::Receive { .. } | StepKind::Local { .. } => time,
        };
        // From now on, this is the time at which a message can be seen.
        self.available[id] = seen;
        let graph = self.graph;
        for next in graph.within.of(at).iter().map(|next| *next as usize) {
            let taken = graph.nodes[next].takes == at
                && matches!(graph.nodes[next].kind, StepKind::Receive { .. });
            self.tell(window * nodes + next, if taken { seen } else { time });
        }
        if let StepKind::Receive { from, .. } = node.kind
            && self.machine.near(from, node.rank)
        {
            self.one_less(self.slot_gate(window, from), time);
        }
        self.one_less(self.call_gate(window / self.length.windows, node.rank), time);
        if !(window + 1).is_multiple_of(self.length.windows) {
            for next in graph.across.of(at).iter().map(|next| *next as usize) {
                self.tell((window + 1) * nodes + next, time);
            }
        }
    }

    fn tell(&mut self, id: usize, time: u64) {
        self.available[id] = self.available[id].max(time);
        self.waits[id] -= 1;
        if self.waits[id] == 0 {
            self.offer(id);
        }
    }

    /// Called once all nodes that `id` waited for have ended. Its rank may still be in the call before, and
    /// messages of earlier windows may occupy all slots.
    fn offer(&mut self, id: usize) {
        let GraphNode { rank, kind, .. } = *self.node(id);
        let window = id / self.graph.nodes.len();
        let near = matches!(kind, StepKind::Message { to } if self.machine.near(rank, to));
        let call_before = (window / self.length.windows).checked_sub(1);
        let slot_before = window.checked_sub(self.tallies.room[rank]).filter(|_| near);
        let gates = [
            call_before.map(|call| self.call_gate(call, rank)),
            slot_before.map(|window| self.slot_gate(window, rank)),
        ];
        match gates.into_iter().flatten().find(|gate| self.gates[*gate].left > 0) {
            Some(gate) => self.gates[gate].waiting.push(id as u32),
            None => self.events.push(event(self.available[id], id as u64)),
        }
    }

    fn call_gate(&self, call: usize, rank: usize) -> usize {
        call * self.length.world + rank
    }

    fn slot_gate(&self, window: usize, rank: usize) -> usize {
        (self.length.calls + window) * self.length.world + rank
    }

    /// One less of those that nodes at the gate wait for.
    fn one_less(&mut self, gate: usize, time: u64) {
        let gate = &mut self.gates[gate];
        gate.left -= 1;
        if gate.left == 0 {
            for id in std::mem::take(&mut gate.waiting) {
                let id = id as usize;
                self.available[id] = self.available[id].max(time);
                self.offer(id);
            }
        }
    }

    fn node(&self, id: usize) -> &'a GraphNode {
        &self.graph.nodes[id % self.graph.nodes.len()]
    }
}

fn bit(core: usize) -> u64 {
    1 << (core % 64)
}

/// The longest time of one piece of work, a few minutes in picoseconds. With this limit, sums of
/// many times do not overflow.
const LONGEST: u128 = 1 << 48;

fn kib(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * u128::from(rate) / 1024).min(LONGEST) as u64
}
