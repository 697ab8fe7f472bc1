//! Schedules that complete in the order of the proof complete in every conflict order, with the
//! same bits.

use crate::common::{Executor, Memory, SeededRng, home, works_in_place};
use maypole::algorithms::Algorithm;
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, Step, input};
use maypole_pictures::clocks::{Cost, Ports, StepOrder, simulate_in};
use proptest::prelude::*;

/// Neither commutes nor associates, so every order of combination gives other bits.
fn op(a: u64, b: u64) -> u64 {
    a.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b
}

/// The reference: numbers in the order of the proof.
struct Numbers {
    memory: Memory,
    placement: Placement,
}

impl Numbers {
    fn read(&self, rank: usize, span: Span) -> u64 {
        self.memory.get(&(rank, home(span, self.placement))).copied().unwrap_or(0xdead)
    }

    fn write(&mut self, rank: usize, into: Span, value: u64, reduce: bool) {
        let value = if reduce { op(self.read(rank, into), value) } else { value };
        self.memory.insert((rank, home(into, self.placement)), value);
    }
}

impl Meaning for Numbers {
    type Message = u64;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> u64 {
        self.read(rank, from)
    }

    fn receive(&mut self, rank: usize, _: usize, into: Span, _: usize, message: u64, reduce: bool) {
        self.write(rank, into, message, reduce);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        self.write(rank, into, self.read(rank, from), reduce);
    }
}

fn start(schedules: &[Schedule], placement: Placement) -> Memory {
    let place = |rank: usize| (0..schedules[rank].chunks).map(move |chunk| (rank, chunk));
    let number = |(rank, chunk)| {
        (
            (rank, home(input(chunk), placement)),
            SeededRng::new((rank * 100 + chunk) as u64).next_u64(),
        )
    };
    (0..schedules.len()).flat_map(place).map(number).collect()
}

/// Checks `schedules` if they complete in the order of the proof; false if they do not.
fn check(schedules: &[Schedule], placement: Placement, rng: &mut SeededRng) -> bool {
    let memory = start(schedules, placement);
    let mut numbers = Numbers { memory: memory.clone(), placement };
    if walk(schedules, placement, &mut numbers).is_err() {
        return false;
    }
    for _ in 0..4 {
        let mut executor = Executor::new(schedules, placement, op, memory.clone());
        assert!(executor.run(rng), "stuck in conflict order: {schedules:#?}");
        assert_eq!(executor.memory, numbers.memory, "{schedules:#?}");
    }
    if placement == Placement::Apart {
        price(schedules, rng);
    }
    true
}

/// Checks that the simulator completes in both orders, in one window and in three, and that no rank
/// finishes after the whole.
fn price(schedules: &[Schedule], rng: &mut SeededRng) {
    let ports = [Ports::Single, Ports::PerLink][rng.below(2)];
    let cost = Cost {
        alpha: rng.below(3) as f64,
        beta: rng.below(3) as f64,
        gamma: rng.below(3) as f64,
        ports,
    };
    let layout = Layout::even(12 * schedules[0].chunks, schedules[0].chunks);
    for order in [StepOrder::Conflict, StepOrder::List] {
        for windows in [1, 3] {
            let estimate =
                simulate_in(order, schedules, &layout, 1, windows, cost).expect("it completes");
            assert!(
                estimate.seconds >= 0.0
                    && estimate.finish.iter().all(|&finish| finish <= estimate.seconds)
            );
        }
    }
}

const CHUNKS: usize = 3;

fn span(rng: &mut SeededRng, buffers: &[Buffer]) -> Span {
    Span { buffer: buffers[rng.below(buffers.len())], chunk: rng.below(CHUNKS) }
}

/// Random steps. Sends and their receives are pairs, the receive somewhat later than the send, so
/// that many of these schedules complete. Their results have no meaning.
fn random(world: usize, events: usize, rng: &mut SeededRng) -> Vec<Schedule> {
    let readable = [Buffer::Input, Buffer::Output, Buffer::Scratch];
    let writable = [Buffer::Output, Buffer::Scratch];
    let mut steps = vec![Vec::new(); world];
    let mut in_flight: Vec<(usize, usize)> = Vec::new();
    for _ in 0..events {
        let rank = rng.below(world);
        match rng.below(4) {
            0 => steps[rank]
                .push(Step::Copy { from: span(rng, &readable), into: span(rng, &writable) }),
            1 => steps[rank]
                .push(Step::Reduce { from: span(rng, &readable), into: span(rng, &writable) }),
            _ => {
                let to = (rank + 1 + rng.below(world - 1)) % world;
                steps[rank].push(Step::Send { from: span(rng, &readable), to });
                in_flight.push((rank, to));
            }
        }
        while in_flight.len() > 1 + rng.below(4) {
            receive(&mut steps, &mut in_flight, rng);
        }
    }
    while !in_flight.is_empty() {
        receive(&mut steps, &mut in_flight, rng);
    }
    let schedule = |steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps };
    steps.into_iter().map(schedule).collect()
}

fn receive(steps: &mut [Vec<Step>], in_flight: &mut Vec<(usize, usize)>, rng: &mut SeededRng) {
    let (from, to) = in_flight.remove(rng.below(in_flight.len()));
    let into = span(rng, &[Buffer::Output, Buffer::Scratch]);
    let step =
        if rng.below(2) == 0 { Step::Recv { into, from } } else { Step::RecvReduce { into, from } };
    steps[to].push(step);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn random_schedules_that_complete_do_so_in_any_conflict_order(
        world in 2..6usize, events in 1..24usize, seed: u64, in_place: bool,
    ) {
        let mut rng = SeededRng::new(seed);
        let placement = if in_place { Placement::InPlace } else { Placement::Apart };
        check(&random(world, events, &mut rng), placement, &mut rng);
    }
}

/// The property above would mean little if few random schedules completed.
#[test]
fn enough_random_schedules_complete() {
    let mut rng = SeededRng::new(1);
    let complete = (0..500).filter(|_| {
        let world = 2 + rng.below(4);
        let events = 1 + rng.below(23);
        let schedules = random(world, events, &mut rng);
        check(&schedules, Placement::Apart, &mut rng)
    });
    let complete = complete.count();
    assert!(complete > 150, "only {complete} of 500");
}

#[test]
fn every_algorithm_gives_the_same_bits_in_any_conflict_order() {
    let mut rng = SeededRng::new(2);
    for algorithm in Algorithm::ALL {
        for &collective in algorithm.collectives() {
            for world in [2, 3, 5, 8] {
                let schedules = algorithm.schedules(collective, world).expect("it is in the table");
                assert!(check(&schedules, Placement::Apart, &mut rng));
                let completes = check(&schedules, Placement::InPlace, &mut rng);
                assert!(completes || !works_in_place(algorithm, collective));
            }
        }
    }
}
