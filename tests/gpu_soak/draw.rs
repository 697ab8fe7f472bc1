//! How a plan follows from its seed.

use crate::common::SeededRng;
use crate::disturb;
use crate::plan::{Call, Class, Driver, Layout, Plan, Step, What};
use maypole::schedule::collective::Collective;
use maypole::{DataType, Factor, ReduceOp};
use std::time::Duration;

/// Elements of calls. The first are drawn most often.
const COUNTS: [usize; 10] = [1, 2, 1000, 7, 100, 5000, 20_000, 70_001, 3, 0];
/// Elements of the long calls of a crowded GPU.
const LONG_COUNTS: [usize; 3] = [100_000, 40_001, 150_000];

/// A plan that grows.
pub(crate) struct Draw {
    pub(crate) rng: SeededRng,
    pub(crate) plan: Plan,
    /// By group: calls that are drawn again and again, so that calls of the same shape follow one
    /// another.
    palettes: Vec<Vec<Call>>,
    graphs: usize,
}

/// The plan of `seed`, of one of these classes.
pub(crate) fn draw(seed: u64, classes: &[Class]) -> Plan {
    let mut rng = SeededRng::new(seed);
    let class = classes[rng.below(classes.len())];
    let world = 2 + rng.below(3);
    let plan = Plan {
        seed,
        class,
        world,
        layout: layout(class, world, &mut rng),
        hosts: vec![0; world],
        driver: driver(class, world, &mut rng),
        quiet: captures(class) || rng.below(2) == 0,
        patience: patience(class, &mut rng),
        goes_on: rng.below(2) == 0,
        mismatch: None,
        groups: Vec::new(),
        calls: Vec::new(),
        steps: vec![Vec::new(); world],
    };
    let mut draw = Draw { rng, plan, palettes: Vec::new(), graphs: 0 };
    draw.hosts();
    draw.groups();
    let sections = 2 + draw.rng.below(4);
    (0..sections).for_each(|_| draw.section());
    disturb::add_calls(&mut draw);
    draw.end();
    disturb::disturb(&mut draw);
    draw.plan
}

/// True if calls of the class are captured, or fill a GPU.
fn captures(class: Class) -> bool {
    use Class::{Crowded, Graphs, Overlap, Uncaptured};
    matches!(class, Crowded | Graphs | Overlap | Uncaptured)
}

/// True if the ranks are processes.
fn needs_processes(class: Class) -> bool {
    matches!(class, Class::Kill | Class::Hosts)
}

fn layout(class: Class, world: usize, rng: &mut SeededRng) -> Layout {
    let cut = 1 + rng.below(world - 1);
    let mixed = vec![(0..cut).collect(), (cut..world).collect()];
    match (class, rng.below(6)) {
        (_, 0) => Layout::Processes(mixed),
        (class, kind) if needs_processes(class) || kind <= 2 => {
            Layout::Processes((0..world).map(|it| vec![it]).collect())
        }
        _ => Layout::Threads,
    }
}

fn driver(class: Class, world: usize, rng: &mut SeededRng) -> Driver {
    let mut of = |choices: &[usize]| choices[rng.below(choices.len())];
    let is_crowded = class == Class::Crowded;
    let few = of(&[2, 3, 4, 8]);
    Driver {
        devices: if is_crowded { 1 } else { of(&[1, 1, 2, 4]) },
        processors: if is_crowded { few * world } else { of(&[16, 32, 132]) },
        threads: of(&[2, 3, 4, 4]),
        delay: of(&[0, 0, 0, 30, 200]),
        has_peers: of(&[0, 1, 2, 3, 4, 5, 6, 7]) > 0,
        mailboxes: ["auto", "auto", "auto", "host"][of(&[0, 1, 2, 3])],
        fails: None,
    }
}

/// Short where ranks are expected to lose it.
fn patience(class: Class, rng: &mut SeededRng) -> Duration {
    let short = Duration::from_millis(500 + 100 * rng.below(5) as u64);
    match class {
        _ if !class.is_disturbed() => Duration::from_secs(30),
        Class::Kill | Class::Abort => Duration::from_secs(20),
        _ => short,
    }
}

impl Draw {
    /// The processes of the class `Hosts` are on two hosts, and those of some rounds of other classes.
    fn hosts(&mut self) {
        let is_spread = self.plan.layout != Layout::Threads && self.rng.below(4) == 0;
        if self.plan.class != Class::Hosts && !is_spread {
            return;
        }
        for ranks in self.plan.processes() {
            let host = self.rng.below(2);
            ranks.into_iter().for_each(|rank| self.plan.hosts[rank] = host);
        }
    }

    fn groups(&mut self) {
        let world = self.plan.world;
        let class = self.plan.class;
        let all: Vec<usize> = (0..world).collect();
        self.plan.groups.push(all.clone());
        let two = matches!(class, Class::Crowded | Class::Drops) || self.rng.below(3) == 0;
        if two {
            let left_out = self.rng.below(world);
            let some = world > 2 && class != Class::Crowded && self.rng.below(2) == 0;
            let ranks = all.into_iter().filter(|rank| !some || *rank != left_out).collect();
            self.plan.groups.push(ranks);
        }
        for group in 0..self.plan.groups.len() {
            let shapes = 1 + self.rng.below(3);
            let palette = (0..shapes).map(|_| self.shape(group)).collect();
            self.palettes.push(palette);
        }
    }

    fn kind(&mut self) -> DataType {
        DataType::NUMBERS[self.rng.below(DataType::NUMBERS.len())]
    }

    pub(crate) fn op(&mut self, kind: DataType, is_scan: bool) -> ReduceOp {
        let able = ReduceOp::ALL.iter().copied().filter(|op| op.supports(kind));
        let mut able: Vec<_> = able.filter(|op| !(is_scan && *op == ReduceOp::Avg)).collect();
        able.push(ReduceOp::PreMulSum(Factor::new(2.0)));
        able[self.rng.below(able.len())]
    }

    fn what(&mut self, ranks: usize, kind: DataType) -> What {
        let root = self.rng.below(ranks);
        let collective = match self.rng.below(16) {
            0 => return What::Ring { shift: 1 + self.rng.below(ranks - 1) },
            1 => {
                let to = (root + 1 + self.rng.below(ranks - 1)) % ranks;
                return What::Pair { from: root, to };
            }
            2..6 => Collective::AllReduce,
            _ => Collective::all(root)[self.rng.below(11)],
        };
        let is_scan = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        let op = if collective.reduces() { self.op(kind, is_scan) } else { ReduceOp::Max };
        let in_place = collective != Collective::Barrier && self.rng.below(2) == 0;
        What::Collective { collective, op, in_place }
    }

    fn shape(&mut self, group: usize) -> Call {
        let kind = self.kind();
        let what = self.what(self.plan.groups[group].len(), kind);
        let long = self.plan.class == Class::Crowded && self.rng.below(4) > 0;
        let counts = if long { &LONG_COUNTS[..] } else { &COUNTS };
        // The lesser of two, so that the first counts come more often.
        let at = self.rng.below(counts.len()).min(self.rng.below(counts.len()));
        let count = if what.is_barrier() { 0 } else { counts[at] };
        Call { group, what, kind, count, seed: 0, replays: 0 }
    }

    /// A call of the group, with numbers of its own.
    pub(crate) fn call(&mut self, group: usize) -> usize {
        let palette = &self.palettes[group];
        let mut call = palette[self.rng.below(palette.len())].clone();
        if self.rng.below(8) == 0 {
            call = self.shape(group);
        }
        if self.plan.class == Class::Mismatch && !call.what.is_barrier() {
            // No other call of the plan looks like this one.
            call.count = call.count % 5000 + 5001 * (1 + self.plan.calls.len() % 8);
            call.count += self.plan.calls.len();
        }
        self.add_call(call)
    }

    pub(crate) fn add_call(&mut self, call: Call) -> usize {
        let seed = self.rng.next_u64();
        self.plan.calls.push(Call { seed, ..call });
        self.plan.calls.len() - 1
    }

    fn grouped_call(&mut self, group: usize) -> usize {
        let call = self.call(group);
        let what = self.plan.calls[call].what;
        let op = ReduceOp::Sum;
        let instead = What::Collective { collective: Collective::AllReduce, op, in_place: false };
        self.plan.calls[call].what = if what.is_groupable() { what } else { instead };
        call
    }

    /// Adds a step of all members.
    pub(crate) fn all(&mut self, group: usize, step: &Step) {
        for rank in self.plan.groups[group].clone() {
            // Now and then a rank is slower than the others, but not too slow.
            let millis = 1 + self.rng.below(15) as u64;
            match self.rng.below(25) {
                0 => self.plan.steps[rank].push(Step::Pause { millis }),
                1 => {
                    self.plan.steps[rank].push(Step::Hold { group, millis });
                }
                _ => {}
            }
            self.plan.steps[rank].push(step.clone());
        }
    }

    pub(crate) fn sync(&mut self, group: usize) {
        let checks = self.rng.below(3) == 0;
        self.all(group, &Step::Sync { group, checks });
    }

    fn section(&mut self) {
        let group = self.rng.below(self.plan.groups.len());
        let graphs = matches!(self.plan.class, Class::Graphs | Class::Overlap);
        if self.plan.class == Class::Company {
            self.company();
        }
        match self.rng.below(10) {
            0..4 if graphs => return self.graph(group),
            0 => (0..self.plan.world).for_each(|rank| self.plan.steps[rank].push(Step::World)),
            1..3 => {
                let count = 1 + self.rng.below(4);
                let calls = (0..count).map(|_| self.grouped_call(group)).collect();
                let ends = self.rng.below(4) > 0;
                self.all(group, &Step::Batch { calls, ends });
            }
            _ => self.run(),
        }
        for group in 0..self.plan.groups.len() {
            if self.rng.below(3) > 0 || self.plan.class == Class::Crowded {
                self.sync(group);
            }
        }
    }

    /// Calls whose ends have not been awaited, and concurrent short-lived groups.
    fn company(&mut self) {
        self.run();
        for _ in 0..1 + self.rng.below(3) {
            // Allocations and waits of the program's other threads would end a capture in global
            // mode.
            let alone = self.plan.processes().iter().all(|ranks| ranks.len() == 1);
            let captures = alone && self.rng.below(2) == 0;
            for rank in 0..self.plan.world {
                if self.rng.below(3) == 0 {
                    let ranks = 2 + self.rng.below(2);
                    self.plan.steps[rank].push(Step::OneThread { ranks });
                }
                self.plan.steps[rank].push(Step::Visit { captures });
            }
            if self.rng.below(2) == 0 {
                self.run();
            }
        }
    }

    /// Calls one after the other, of all groups.
    fn run(&mut self) {
        let count = 1 + self.rng.below(5);
        for _ in 0..count {
            let group = self.rng.below(self.plan.groups.len());
            let call = self.call(group);
            self.all(group, &Step::Call(call));
        }
    }

    /// Captures calls, and replays them between others.
    fn graph(&mut self, group: usize) {
        let overlaps = self.plan.class == Class::Overlap;
        let replays = 2 + self.rng.below(4);
        let count = 1 + self.rng.below(3);
        let mut calls = Vec::new();
        for _ in 0..count {
            let warm = self.call(group);
            self.all(group, &Step::Call(warm));
            let again = Call { replays, ..self.plan.calls[warm].clone() };
            calls.push(self.add_call(again));
        }
        self.sync(group);
        let graph = self.graphs;
        self.graphs += 1;
        let beside = overlaps || self.rng.below(2) == 0;
        self.all(group, &Step::Capture { graph, calls, beside });
        for nth in 0..replays {
            self.all(group, &Step::Replay { graph, nth, overlaps });
            if overlaps || self.rng.below(2) == 0 {
                let call = self.call(group);
                self.all(group, &Step::Call(call));
            }
            if self.rng.below(2) == 0 {
                self.sync(group);
            }
        }
        self.sync(group);
    }

    /// A capture that lacks a call, and its replay.
    pub(crate) fn capture_new(&mut self, group: usize) {
        self.sync(group);
        let kind = DataType::I32;
        let op = ReduceOp::Sum;
        let what = What::Collective { collective: Collective::AllReduce, op, in_place: false };
        let count = 4321;
        let call = self.add_call(Call { group, what, kind, count, seed: 0, replays: 1 });
        let graph = self.graphs;
        self.graphs += 1;
        self.all(group, &Step::CaptureNew { graph, call });
        self.all(group, &Step::Replay { graph, nth: 0, overlaps: false });
        self.sync(group);
    }

    /// Waits for everything, and drops the groups.
    fn end(&mut self) {
        let groups = self.plan.groups.len();
        (0..groups).for_each(|group| self.sync(group));
        let early = self.plan.class == Class::Drops;
        for rank in 0..self.plan.world {
            let mine = |group: &usize| self.plan.groups[*group].contains(&rank);
            let mut order: Vec<usize> = (0..groups).filter(mine).collect();
            if early && self.rng.below(2) == 0 {
                order.reverse();
            }
            for group in order {
                let steps = &mut self.plan.steps[rank];
                let uses = |step: &Step| uses_group(step, group, &self.plan.calls);
                let last = steps.iter().rposition(uses).map_or(0, |at| at + 1);
                let latest = steps.len() + 1 - last;
                let at = if early { last + self.rng.below(latest) } else { steps.len() };
                steps.insert(at, Step::Drop(group));
            }
        }
        let stale = self.plan.class == Class::Graphs && self.graphs > 0;
        for rank in 0..self.plan.world {
            let captured =
                self.plan.steps[rank].iter().any(|it| matches!(it, Step::Capture { .. }));
            if stale && captured {
                self.plan.steps[rank].push(Step::ReplayStale(0));
            }
            self.plan.steps[rank].push(Step::World);
        }
    }
}

/// True if this step needs the group.
fn uses_group(step: &Step, group: usize, calls: &[Call]) -> bool {
    match step {
        Step::Call(call) | Step::CaptureNew { call, .. } => calls[*call].group == group,
        Step::Batch { calls: all, .. } | Step::Capture { calls: all, .. } => {
            all.iter().any(|call| calls[*call].group == group)
        }
        Step::Sync { group: of, .. } | Step::Hold { group: of, .. } => *of == group,
        // Replays are followed by a wait for their group.
        _ => false,
    }
}
