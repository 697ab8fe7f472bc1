//! The machine: ranks move and combine every byte with cores of their own, or with cores that they share.
//!
//! * Publishing takes the sender's core, taking takes the receiver's; in between a message is under way for
//!   [`Link::latency`], which costs nobody anything.
//! * The same span for several ranks that share memory is published once.
//! * A core that has read a publication reads it again, for another of its ranks, from its own cache.
//! * A core runs one rank until that rank has to wait, then the next of its ranks, in turn; every turn is a
//!   [`Machine::switch`], whether or not there was something to do.
//! * A rank with more than a few streams looks at all of them while it waits for one.
//!
//! Everything is counted in whole picoseconds, ties go to the lower rank, the earlier window, the earlier step: equal
//! arguments give equal numbers on every host, whatever its arithmetic.

use super::Order;
use super::graph::{Graph, Kind, Node};
use crate::schedule::Schedule;
use crate::walk::Stuck;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// What a message costs, in picoseconds; what a byte costs, in picoseconds a KiB.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Link {
    /// To publish a message, however short.
    pub post: u64,
    /// From its publication until it can be seen.
    pub latency: u64,
    /// To take a message, however short.
    pub take: u64,
    /// To look at one more peer's link while waiting.
    pub look: u64,
    /// To publish a KiB.
    pub post_kib: u64,
    /// To take a KiB as it is.
    pub copy_kib: u64,
    /// To take a KiB and combine it.
    pub fold_kib: u64,
}

/// Where ranks run and what lies between them.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// For each rank the number of its board: ranks with equal numbers are joined by it.
    pub hosts: &'a [usize],
    /// Between ranks of one board.
    pub board: Link,
    /// Between all others.
    pub stream: Link,
    /// How many ranks share a core.
    pub crowding: usize,
    /// For a core to turn to another rank.
    pub switch: u64,
}

/// What a KiB costs that the core has in its own cache, as a part of what it costs from another's.
const WARM: (u64, u64) = (1, 3);

/// So many streams bring something whenever they are looked at.
const FEW: u64 = 3;

/// Schedules, ready to be priced for several sizes.
pub struct Rehearsal {
    graph: Graph,
    world: usize,
}

impl Rehearsal {
    /// Finds out what waits for what.
    ///
    /// # Errors
    /// [`Stuck`] if the steps cannot all be taken.
    pub fn new(schedules: &[Schedule]) -> Result<Self, Stuck> {
        Ok(Self { graph: Graph::new(Order::Conflict, schedules)?, world: schedules.len() })
    }

    /// How many things happen in a window: what a window costs to price.
    pub fn events(&self) -> usize {
        self.graph.nodes.len()
    }

    /// How long it takes if every chunk is `windows` windows of `bytes` bytes.
    ///
    /// # Panics
    /// If there is not one host for each rank.
    pub fn run(&self, machine: &Machine<'_>, windows: usize, bytes: usize) -> Took {
        assert_eq!(machine.hosts.len(), self.world, "one host for each rank");
        Turns::new(&self.graph, machine, self.world, windows, bytes as u64).run()
    }
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("world", &self.world).field("events", &self.events()).finish()
    }
}

/// What a run took, in picoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Took {
    /// Until the last rank is done.
    pub end: u64,
    /// Of that, what the busiest core was at work.
    pub busiest: u64,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Happens {
    /// A node of a window has all that it waited for.
    Ready(usize),
    /// A core has done what it was at.
    Free(usize),
}

/// A core, and those of its ranks' nodes that could run.
struct Core {
    ranks: Vec<usize>,
    /// Which of them it runs.
    current: usize,
    busy: bool,
    worked: u64,
}

struct Turns<'a> {
    graph: &'a Graph,
    machine: &'a Machine<'a>,
    windows: usize,
    bytes: u64,
    waits: Vec<u32>,
    since: Vec<u64>,
    /// By publication: whether it is on the board, and the cores that have read it.
    published: Vec<bool>,
    warm: Vec<u64>,
    cores: Vec<Core>,
    /// By rank: nodes that could run.
    could: Vec<BinaryHeap<Reverse<usize>>>,
    /// By rank: how many streams it listens to, beyond the few that cost nothing.
    looks: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, Happens)>>,
    end: u64,
}

impl<'a> Turns<'a> {
    fn new(graph: &'a Graph, machine: &'a Machine<'a>, world: usize, windows: usize, bytes: u64) -> Self {
        let first = graph.nodes.iter().map(|node| node.waits);
        let later = graph.nodes.iter().map(|node| node.waits + node.waits_across);
        let waits: Vec<u32> = first.chain((1..windows).flat_map(|_| later.clone())).collect();
        let count = world.div_ceil(machine.crowding.max(1));
        let ranks_of = |core| (core..world).step_by(count).collect();
        Self {
            graph,
            machine,
            windows,
            bytes,
            since: vec![0; waits.len()],
            published: vec![false; waits.len()],
            warm: vec![0; waits.len()],
            waits,
            cores: (0..count).map(|core| Core { ranks: ranks_of(core), current: 0, busy: false, worked: 0 }).collect(),
            could: vec![BinaryHeap::new(); world],
            looks: looks(graph, machine, world),
            events: BinaryHeap::new(),
            end: 0,
        }
    }

    fn run(mut self) -> Took {
        for id in (0..self.waits.len()).filter(|&id| self.waits[id] == 0).collect::<Vec<_>>() {
            self.events.push(Reverse((0, Happens::Ready(id))));
        }
        while let Some(Reverse((now, what))) = self.events.pop() {
            match what {
                // What happens within a rank is free, because executors fuse it with what comes or goes.
                Happens::Ready(id) if matches!(self.node(id).kind, Kind::Local { .. }) => self.done(id, now),
                Happens::Ready(id) => {
                    let rank = self.node(id).rank;
                    self.could[rank].push(Reverse(id));
                    let core = rank % self.cores.len();
                    if !self.cores[core].busy {
                        self.turn(core, now);
                    }
                }
                Happens::Free(core) => self.turn(core, now),
            }
        }
        Took { end: self.end, busiest: self.cores.iter().map(|core| core.worked).max().unwrap_or(0) }
    }

    /// Lets `core` go on with its rank, or with the next one that could.
    fn turn(&mut self, at: usize, now: u64) {
        let core = &mut self.cores[at];
        let turns = core.ranks.len();
        let could = |turn: &usize| !self.could[core.ranks[(core.current + turn) % turns]].is_empty();
        let next = (0..turns).find(could);
        core.busy = next.is_some();
        let Some(turn) = next else { return };
        core.current = (core.current + turn) % turns;
        let Reverse(id) = self.could[core.ranks[core.current]].pop().expect("it could");
        let end = now + turn as u64 * self.machine.switch + self.takes(id, at);
        self.cores[at].worked += end - now;
        self.events.push(Reverse((end, Happens::Free(at))));
        self.done(id, end);
    }

    /// How long the core is at it.
    fn takes(&mut self, id: usize, core: usize) -> u64 {
        let node = self.node(id);
        let bytes = node.chunks.len() as u64 * self.bytes;
        match node.kind {
            Kind::Message { to } => {
                let publication = self.publication(id);
                if self.machine.near(node.rank, to) && std::mem::replace(&mut self.published[publication], true) {
                    return 0;
                }
                let link = self.machine.link(node.rank, to);
                link.post + kib(bytes, link.post_kib)
            }
            Kind::Receive { from, reduces } => {
                let link = self.machine.link(from, node.rank);
                let rate = if reduces { link.fold_kib } else { link.copy_kib };
                let near = self.machine.near(from, node.rank);
                let looks = if near { 0 } else { self.looks[node.rank] * link.look };
                link.take + looks + kib(bytes, if near { self.rate(id, core, rate) } else { rate })
            }
            Kind::Local { .. } => 0,
        }
    }

    /// The rate at which `core` reads what `id` takes, and notes that it then has it.
    fn rate(&mut self, id: usize, core: usize, cold: u64) -> u64 {
        let nodes = self.graph.nodes.len();
        let publication = self.publication(id - id % nodes + self.node(id).takes);
        let warm = self.warm[publication] & bit(core) != 0;
        self.warm[publication] |= bit(core);
        if warm { cold * WARM.0 / WARM.1 } else { cold }
    }

    /// The message that first carried what message `id` carries.
    fn publication(&self, id: usize) -> usize {
        (0..=id).rev().find(|&id| !self.node(id).again).expect("the first node is not again")
    }

    /// `id` has been done by `time`; what waits for a message waits until that has arrived.
    fn done(&mut self, id: usize, time: u64) {
        self.end = self.end.max(time);
        let nodes = self.graph.nodes.len();
        let (window, at) = (id / nodes, id % nodes);
        let node = self.node(id);
        let seen = match node.kind {
            Kind::Message { to } => time + self.machine.link(node.rank, to).latency,
            Kind::Receive { .. } | Kind::Local { .. } => time,
        };
        let graph = self.graph;
        for &next in graph.within.of(at) {
            let taken = graph.nodes[next].takes == at && matches!(graph.nodes[next].kind, Kind::Receive { .. });
            self.tell(window * nodes + next, if taken { seen } else { time });
        }
        if window + 1 < self.windows {
            for &next in graph.across.of(at) {
                self.tell((window + 1) * nodes + next, time);
            }
        }
    }

    fn tell(&mut self, id: usize, time: u64) {
        self.since[id] = self.since[id].max(time);
        self.waits[id] -= 1;
        if self.waits[id] == 0 {
            self.events.push(Reverse((self.since[id], Happens::Ready(id))));
        }
    }

    fn node(&self, id: usize) -> &'a Node {
        &self.graph.nodes[id % self.graph.nodes.len()]
    }
}

impl Machine<'_> {
    fn near(&self, a: usize, b: usize) -> bool {
        self.hosts[a] == self.hosts[b]
    }

    fn link(&self, a: usize, b: usize) -> Link {
        if self.near(a, b) { self.board } else { self.stream }
    }
}

fn bit(core: usize) -> u64 {
    1 << (core % 64)
}

/// Nothing takes longer than a few minutes, so that sums of many stay far from the end of the integers.
const LONGEST: u128 = 1 << 48;

fn kib(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * u128::from(rate) / 1024).min(LONGEST) as u64
}

/// For each rank, how many streams it listens to beyond the few that cost nothing.
fn looks(graph: &Graph, machine: &Machine<'_>, world: usize) -> Vec<u64> {
    let streams = graph.nodes.iter().filter_map(|node| match node.kind {
        Kind::Receive { from, .. } if !machine.near(from, node.rank) => Some((node.rank, from)),
        _ => None,
    });
    let mut looks = vec![0u64; world];
    for (rank, _) in streams.collect::<BTreeSet<_>>() {
        looks[rank] += 1;
    }
    looks.into_iter().map(|streams| streams.saturating_sub(FEW)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::collective::Collective;

    const LINK: Link =
        Link { post: 10, latency: 100, take: 5, look: 0, post_kib: 1024, copy_kib: 2048, fold_kib: 3072 };

    fn time(algorithm: Algorithm, collective: Collective, hosts: &[usize], crowding: usize, bytes: usize) -> u64 {
        let schedules = algorithm.schedules(collective, hosts.len()).unwrap();
        let machine = Machine { hosts, board: LINK, stream: LINK, crowding, switch: 1000 };
        Rehearsal::new(&schedules).unwrap().run(&machine, 1, bytes).end
    }

    #[test]
    fn a_pair_exchanges_in_one_hop() {
        assert_eq!(time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 1, 0), 10 + 100 + 5);
        assert_eq!(time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 1, 8), 10 + 8 + 100 + 5 + 24);
    }

    #[test]
    fn a_board_publishes_once_and_streams_send_to_each() {
        let broadcast = Collective::Broadcast { root: 0 };
        assert_eq!(time(Algorithm::Linear, broadcast, &[0, 0, 0], 1, 8), 10 + 8 + 100 + 5 + 16);
        assert_eq!(time(Algorithm::Linear, broadcast, &[0, 1, 2], 1, 8), 2 * (10 + 8) + 100 + 5 + 16);
    }

    #[test]
    fn ranks_of_one_core_take_turns() {
        // Rank 0 publishes; the core turns to rank 1, which publishes and takes; then back, once that can be seen.
        assert_eq!(time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 2, 0), 10 + 1000 + 10 + 100 + 1000 + 5);
    }
}
