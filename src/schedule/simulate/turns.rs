//! Cores that take turns: the run of a [`MachineModel`], event by event.

use super::SHORT_MESSAGES_TOGETHER;
use super::event::{CoreEvent, TimedEvent};
use super::machine::{MachineModel, RunTime};
use super::tallies::{carriers, polled, room, unread};
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
    /// By node: the first message with the same content.
    original: Vec<u32>,
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
    /// By rank: how many streams it listens to, beyond the few that cost nothing.
    polled: Vec<u64>,
    /// By the two ranks of a stream, from and to: when the receiver last read from it.
    reads: Vec<u64>,
    /// By call and rank: the number of its nodes that have not ended, and the nodes of the next
    /// call that wait for them.
    unfinished: Vec<u32>,
    blocked: Vec<Vec<u32>>,
    /// By window and rank: receives that have not yet read the rank's publication, and messages
    /// that wait for a slot.
    unread: Vec<u32>,
    full: Vec<Vec<u32>>,
    /// By rank: the number of windows whose messages the board can hold.
    room: Vec<usize>,
    events: BinaryHeap<Reverse<TimedEvent>>,
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
        let mut unfinished = vec![0; calls * world];
        graph.nodes.iter().for_each(|node| unfinished[node.rank] += windows as u32);
        (world..unfinished.len()).for_each(|at| unfinished[at] = unfinished[at - world]);
        let unread = unread(graph, machine, world).repeat(calls * windows);
        Self {
            graph,
            machine,
            length,
            blocked: vec![Vec::new(); unfinished.len()],
            unfinished,
            full: vec![Vec::new(); unread.len()],
            unread,
            room: room(graph, machine, world),
            original: carriers(graph),
            available: vec![0; waits.len()],
            published: vec![false; waits.len()],
            cached_by: vec![0; waits.len()],
            waits,
            cores: (0..count)
                .map(|core| Core { ranks: ranks_of(core), current: 0, busy: false, worked: 0 })
                .collect(),
            ready: vec![BinaryHeap::new(); world],
            polled: polled(graph, machine, world),
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
            let (now, what) = event.parts();
            match what {
                CoreEvent::Ready(id) if self.is_free(id) => self.done(id, now),
                CoreEvent::Ready(id) => {
                    let rank = self.node(id).rank;
                    self.ready[rank].push(Reverse(id as u32));
                    let core = rank % self.cores.len();
                    if !self.cores[core].busy {
                        self.turn(core, now);
                    }
                }
                CoreEvent::Free(core) => self.turn(core, now),
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
        self.events.push(Reverse(TimedEvent::new(end, CoreEvent::Free(at))));
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
        let alone = link.take + self.polled[node.rank] * link.look;
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
        id - id % nodes + self.original[id % nodes] as usize
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
            self.one_less_unread(window, from, time);
        }
        self.one_less(window / self.length.windows * self.length.world + node.rank, time);
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

    /// Called once all nodes that `id` waited for have ended. Its rank may still be in the call
    /// before.
    fn offer(&mut self, id: usize) {
        let RunLength { world, windows, .. } = self.length;
        let call = id / (windows * self.graph.nodes.len());
        let before = call.checked_sub(1).map(|call| call * world + self.node(id).rank);
        match before.filter(|&before| self.unfinished[before] > 0) {
            Some(before) => self.blocked[before].push(id as u32),
            None => self.offer_slot(id),
        }
    }

    /// Lets message `id` run once it has a slot. Messages of earlier windows may still occupy all
    /// slots.
    fn offer_slot(&mut self, id: usize) {
        let GraphNode { rank, kind, .. } = *self.node(id);
        let near = matches!(kind, StepKind::Message { to } if self.machine.near(rank, to));
        let before = (id / self.graph.nodes.len()).checked_sub(self.room[rank]).filter(|_| near);
        match before
            .map(|window| window * self.length.world + rank)
            .filter(|&before| self.unread[before] > 0)
        {
            Some(before) => self.full[before].push(id as u32),
            None => {
                let ready = TimedEvent::new(self.available[id], CoreEvent::Ready(id));
                self.events.push(Reverse(ready));
            }
        }
    }

    /// One more receive has read a publication of `rank` in `window`.
    fn one_less_unread(&mut self, window: usize, rank: usize, time: u64) {
        let at = window * self.length.world + rank;
        self.unread[at] -= 1;
        if self.unread[at] == 0 {
            for id in std::mem::take(&mut self.full[at]) {
                let id = id as usize;
                self.available[id] = self.available[id].max(time);
                self.offer_slot(id);
            }
        }
    }

    /// A rank has done one more node of a call.
    fn one_less(&mut self, at: usize, time: u64) {
        self.unfinished[at] -= 1;
        if self.unfinished[at] == 0 {
            for id in std::mem::take(&mut self.blocked[at]) {
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
