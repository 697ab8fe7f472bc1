//! Reproducible random values, and a naive executor: it runs schedules on numbers in conflict
//! order, and draws the next step among those that may begin.
//!
//! The executor does not use `walk` or `simulate`. It looks up a step's dependencies pair by pair,
//! by the law.
#![allow(dead_code, reason = "not every test uses all of it")]

pub mod random;
pub mod tasks;
pub mod walked;
pub mod world;

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::{Buffer, Placement, Schedule, Span, Step};
use proptest::prelude::{ProptestConfig, Strategy};
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;

/// Random numbers that are equal for equal seeds, in every run.
pub struct SeededRng(SplitMix64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// A value of `strategy`.
    pub fn sample<S: Strategy>(&mut self, strategy: &S) -> S::Value {
        let words = std::array::from_fn::<_, 4, _>(|_| self.next_u64().to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, words.as_flattened());
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        strategy.new_tree(&mut runner).expect("the strategy has a value").current()
    }
}

/// True if the schedules of `algorithm` for `collective` are right for every world and root also when
/// input and output are one buffer. Otherwise an in-place call first copies its input to a staging
/// buffer. (A barrier has no buffer that could be in place.)
///
/// A combination from left to right begins with rank 0's part, which in place would overwrite the rank's
/// own part. All-to-all exchanges blocks, which overwrites some before they leave.
pub fn works_in_place(algorithm: Algorithm, collective: Collective) -> bool {
    let clobbers = match algorithm {
        Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Dissemination => true,
        Algorithm::Linear => matches!(collective, Collective::Reduce { .. }),
        Algorithm::Direct => !matches!(collective, Collective::AllGather),
        Algorithm::Pairwise | Algorithm::Bruck => matches!(collective, Collective::AllToAll),
        Algorithm::Ring => matches!(collective, Collective::Scan | Collective::ExclusiveScan),
        _ => false,
    };
    algorithm.supports(collective) && !clobbers
}

/// The number in every span, by (rank, span). In place, an input is the output span of the same
/// chunk.
pub type Memory = HashMap<(usize, Span), u64>;

pub fn home(span: Span, placement: Placement) -> Span {
    match (placement, span.buffer) {
        (Placement::InPlace, Buffer::Input) => Span { buffer: Buffer::Output, chunk: span.chunk },
        _ => span,
    }
}

/// How steps are combined: any function, not only one that commutes or associates.
pub type Op = fn(u64, u64) -> u64;

pub struct Executor<'a> {
    schedules: &'a [Schedule],
    placement: Placement,
    op: Op,
    /// By rank: for each step, the earlier steps that must be done before it.
    waits: Vec<Vec<Vec<usize>>>,
    /// By rank: for each step, its message on its link: (from, to, nth message).
    places: Vec<Vec<Option<(usize, usize, usize)>>>,
    begun: Vec<Vec<bool>>,
    /// By rank: whether each step is done. A send is done once its receiver has taken the message.
    done: Vec<Vec<bool>>,
    /// By message: its value, and the index of the step that sent it.
    posted: HashMap<(usize, usize, usize), (u64, usize)>,
    pub memory: Memory,
}

/// True if `later` must wait until `earlier` is done, because one of them writes a span that the
/// other one uses.
fn conflict(earlier: Step, later: Step, placement: Placement) -> bool {
    let touch = |a: Step, b: Step| {
        a.writes().is_some_and(|w| {
            b.reads().chain(b.writes()).any(|s| home(s, placement) == home(w, placement))
        })
    };
    touch(earlier, later) || touch(later, earlier)
}

fn link(rank: usize, step: Step) -> Option<(usize, usize)> {
    match step {
        Step::Send { to, .. } => Some((rank, to)),
        Step::Recv { from, .. } | Step::RecvReduce { from, .. } => Some((from, rank)),
        Step::Copy { .. } | Step::Reduce { .. } => None,
    }
}

impl<'a> Executor<'a> {
    pub fn new(schedules: &'a [Schedule], placement: Placement, op: Op, memory: Memory) -> Self {
        let mut places = Vec::new();
        let mut waits = Vec::new();
        for (rank, schedule) in schedules.iter().enumerate() {
            let steps = &schedule.steps;
            let mut counts = HashMap::new();
            let mut place = |step: &Step| {
                let (from, to) = link(rank, *step)?;
                let nth = counts.entry((from, to)).and_modify(|nth| *nth += 1).or_insert(0);
                Some((from, to, *nth))
            };
            places.push(steps.iter().map(&mut place).collect());
            let before = |nth: usize| {
                (0..nth).filter(|&e| conflict(steps[e], steps[nth], placement)).collect()
            };
            waits.push((0..steps.len()).map(before).collect());
        }
        let flags: Vec<Vec<bool>> = schedules.iter().map(|s| vec![false; s.steps.len()]).collect();
        let begun = flags.clone();
        let done = flags;
        Self {
            schedules,
            placement,
            op,
            waits,
            places,
            begun,
            done,
            posted: HashMap::new(),
            memory,
        }
    }

    fn may(&self, rank: usize, nth: usize) -> bool {
        let in_turn = |&earlier: &usize| {
            let same = link(rank, self.schedules[rank].steps[earlier])
                == link(rank, self.schedules[rank].steps[nth]);
            !same || self.begun[rank][earlier]
        };
        let linked =
            self.places[rank][nth].is_none() || (0..nth).collect::<Vec<_>>().iter().all(in_turn);
        let waits = self.waits[rank][nth].iter().all(|&earlier| self.done[rank][earlier]);
        let here = match self.schedules[rank].steps[nth] {
            Step::Recv { .. } | Step::RecvReduce { .. } => {
                self.posted.contains_key(&self.places[rank][nth].expect("it is on a link"))
            }
            Step::Send { .. } | Step::Copy { .. } | Step::Reduce { .. } => true,
        };
        !self.begun[rank][nth] && linked && waits && here
    }

    /// All steps that may be taken now.
    fn choices(&self) -> Vec<(usize, usize)> {
        let steps = |rank: usize| (0..self.schedules[rank].steps.len()).map(move |nth| (rank, nth));
        (0..self.schedules.len())
            .flat_map(steps)
            .filter(|&(rank, nth)| self.may(rank, nth))
            .collect()
    }

    fn read(&self, rank: usize, span: Span) -> u64 {
        self.memory.get(&(rank, home(span, self.placement))).copied().unwrap_or(0xdead)
    }

    fn write(&mut self, rank: usize, into: Span, value: u64, reduce: bool) {
        let value = if reduce { (self.op)(self.read(rank, into), value) } else { value };
        self.memory.insert((rank, home(into, self.placement)), value);
    }

    fn take(&mut self, rank: usize, nth: usize) {
        self.begun[rank][nth] = true;
        match self.schedules[rank].steps[nth] {
            Step::Send { from, .. } => {
                let place = self.places[rank][nth].expect("it is on a link");
                let posted = (self.read(rank, from), nth);
                self.posted.insert(place, posted);
                return;
            }
            Step::Recv { into, .. } => self.receive(rank, nth, into, false),
            Step::RecvReduce { into, .. } => self.receive(rank, nth, into, true),
            Step::Copy { from, into } => self.write(rank, into, self.read(rank, from), false),
            Step::Reduce { from, into } => self.write(rank, into, self.read(rank, from), true),
        }
        self.done[rank][nth] = true;
    }

    fn receive(&mut self, rank: usize, nth: usize, into: Span, reduce: bool) {
        let place = self.places[rank][nth].expect("it is on a link");
        let (value, send) = self.posted.remove(&place).expect("it was posted");
        self.done[place.0][send] = true;
        self.write(rank, into, value, reduce);
    }

    /// Takes steps in a random order until none may be taken. True if all were taken.
    pub fn run(&mut self, rng: &mut SeededRng) -> bool {
        loop {
            let choices = self.choices();
            if choices.is_empty() {
                return self.done.iter().flatten().all(|&done| done);
            }
            let (rank, nth) = choices[rng.below(choices.len())];
            self.take(rank, nth);
        }
    }
}
