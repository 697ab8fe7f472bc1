//! Random schedules: the outputs of all ranks, compared with a reference that follows the order of
//! the proof.

use super::WINDOW;
use crate::common::SeededRng;
use crate::common::random::{CHUNKS, Chunks, schedules};
use crate::common::walked::walked;
use crate::common::world::{Operation, World};
use maypole::schedule::collective::Collective;
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, Step, input, output, scratch};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Numbers whose sums depend on the order: of very different sizes.
fn number(rank: usize, at: usize, salt: u64) -> f32 {
    let drawn = SeededRng::new((rank as u64) << 40 ^ (at as u64) << 8 ^ salt).next_u64();
    let size = [1.0, 1e-3, 1e3, 1e6][drawn as usize % 4];
    (drawn >> 40) as f32 / 1e5 * size
}

fn numbers(rank: usize, count: usize, salt: u64) -> Vec<f32> {
    (0..count).map(|at| number(rank, at, salt)).collect()
}

/// The output of every rank in the order of the proof, where `before(rank)` is the content of the
/// output before. `None` if the schedules do not complete.
fn reference(
    schedules: &[Schedule],
    layout: &Layout,
    before: impl Fn(usize) -> Vec<f32>,
) -> Option<Vec<Vec<f32>>> {
    let count = layout.count();
    let cut = |whole: &[f32], chunk| whole[layout.range(chunk)].to_vec();
    let own = (0..schedules.len()).flat_map(|rank| {
        let (mine, before) = (numbers(rank, count, 0), before(rank));
        (0..CHUNKS).flat_map(move |chunk| {
            [(input(chunk), cut(&mine, chunk)), (output(chunk), cut(&before, chunk))]
                .map(|(span, value)| ((rank, span), value))
        })
    });
    let sum = |a: &Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let ends = walked(schedules, Placement::Apart, own, sum).ok()?;
    let end = |rank| (0..CHUNKS).flat_map(|chunk| ends[&(rank, output(chunk))].clone()).collect();
    Some((0..schedules.len()).map(end).collect())
}

/// Makes schedules legal: they may not read scratch before it is written. Such a chunk is written
/// first.
fn write_scratch_first(schedule: &mut Schedule) {
    let is_scratch = |span: &Span| span.buffer == Buffer::Scratch;
    let mut written = BTreeSet::new();
    let mut missing = BTreeSet::new();
    for step in &schedule.steps {
        missing.extend(step.reads().filter(is_scratch).filter(|span| !written.contains(span)));
        written.extend(step.writes().filter(is_scratch));
    }
    let copies = missing.into_iter().map(|into| Step::Copy { from: input(into.chunk), into });
    schedule.steps.splice(0..0, copies);
}

#[derive(Clone, Debug)]
struct Case {
    world: World,
    operation: Operation,
}

fn case(ranks: usize, events: usize, chunks: Chunks, rng: &mut SeededRng) -> Case {
    let hosts = 1 + rng.below(ranks);
    let hosts = (0..ranks).map(|_| rng.below(hosts)).collect();
    let world = World { hosts, capacity: [1, 7, 4096][rng.below(3)] };
    // Per chunk: nothing, one, primes, more than the largest slot holds.
    let count = [0, 1, 7, 127, 1009, 1009, 9001][rng.below(7)];
    let count = count.min(match world.capacity {
        1 => 31,
        7 => 1009,
        _ => usize::MAX,
    });
    let whole = CHUNKS * count + if chunks == Chunks::Aligned { rng.below(CHUNKS) } else { 0 };
    let window = [4, 28, 256, 1 << 11, WINDOW, 1 << 20][rng.below(6)].max(count / 8);
    let operation = Operation {
        collective: Collective::AllReduce,
        schedules: rng.sample(&schedules(ranks, events, chunks)),
        layout: Layout::even(whole, CHUNKS),
        window,
        fingerprint: rng.next_u64(),
    };
    Case { world, operation }
}

impl Case {
    /// The expected result of every rank, apart and in place; `None` if the schedules do not
    /// complete.
    fn expected(&mut self) -> Option<[Vec<Vec<f32>>; 2]> {
        let count = self.operation.layout.count();
        let operation = &mut self.operation;
        operation.schedules.iter_mut().for_each(write_scratch_first);
        let end = |salt| {
            reference(&operation.schedules, &operation.layout, |rank| numbers(rank, count, salt))
        };
        Some([end(1)?, end(0)?])
    }

    /// Runs the case twice in each placement without a barrier, so that ranks run ahead into the
    /// next call.
    fn check(&self, expected: &[Vec<Vec<f32>>; 2]) -> Result<(), String> {
        let count = self.operation.layout.count();
        self.world.run(|me, executor| {
            let placements = [Placement::Apart, Placement::InPlace];
            let programs =
                placements.map(|place| self.operation.lower::<f32>(&self.world.hosts, me, place));
            for turn in 0..4 {
                let program = &programs[turn % 2];
                let mut out = numbers(me, count, 1 - turn as u64 % 2);
                let end = match turn % 2 {
                    0 => self.operation.apart(executor, program, &numbers(me, count, 0), &mut out),
                    _ => self.operation.in_place(executor, program, me, &mut out),
                };
                end.map_err(|failure| format!("rank {me}, turn {turn}: {failure:?}"))?;
                compare(&out, &expected[turn % 2][me])
                    .map_err(|what| format!("rank {me}, turn {turn}: {what}"))?;
            }
            Ok(())
        })
    }
}

fn compare(out: &[f32], expected: &[f32]) -> Result<(), String> {
    let differs = out.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
    differs.map_or(Ok(()), |at| {
        Err(format!("element {at} is {} instead of {}", out[at], expected[at]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, max_shrink_time: 60_000, ..ProptestConfig::default()
    })]
    #[test]
    fn random_schedules_give_the_bits_of_the_proof(
        ranks in 2..6usize,
        events in 1..24usize,
        seed: u64,
        aligned: bool,
    ) {
        let chunks = if aligned { Chunks::Aligned } else { Chunks::Mixed };
        let mut case = case(ranks, events, chunks, &mut SeededRng::new(seed));
        if let Some(expected) = case.expected() {
            let end = case.check(&expected);
            prop_assert!(end.is_ok(), "{}: {case:#?}", end.unwrap_err());
        }
    }
}

/// Checks the steps of two ranks, on a board and over a stream, in many windows.
fn check_pair(zero: Vec<Step>, one: Vec<Step>) {
    let schedules =
        [zero, one].map(|steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps }).to_vec();
    for hosts in [vec![0, 0], vec![0, 1]] {
        let collective = Collective::AllReduce;
        let layout = Layout::even(CHUNKS * 100, CHUNKS);
        let operation = Operation {
            collective,
            schedules: schedules.clone(),
            layout,
            window: 40,
            fingerprint: 1,
        };
        let mut case = Case { world: World { hosts, capacity: 7 }, operation };
        let expected = case.expected().expect("it completes");
        case.check(&expected).unwrap();
    }
}

#[test]
fn what_is_sent_twice_arrives_twice() {
    let send = Step::Send { from: input(0), to: 1 };
    let receive =
        [Step::Recv { into: output(0), from: 0 }, Step::RecvReduce { into: output(0), from: 0 }];
    check_pair(vec![send, send], receive.to_vec());
}

/// The copy into scratch waits for a message, and the next copy waits for nothing. The write must
/// not overtake the first copy.
#[test]
fn a_write_waits_for_all_that_read_before_it() {
    let one = vec![
        Step::Recv { into: scratch(0), from: 0 },
        Step::Reduce { from: output(1), into: scratch(0) },
        Step::Copy { from: output(1), into: output(2) },
        Step::Copy { from: input(0), into: output(1) },
        Step::Copy { from: scratch(0), into: output(0) },
    ];
    check_pair(vec![Step::Send { from: input(0), to: 1 }], one);
}

/// The property above would mean little if few random schedules completed.
#[test]
fn enough_random_schedules_complete() {
    let mut rng = SeededRng::new(3);
    let complete = (0..300).filter(|_| {
        let ranks = 2 + rng.below(4);
        let events = 1 + rng.below(23);
        case(ranks, events, Chunks::Aligned, &mut rng).expected().is_some()
    });
    assert!(complete.count() > 100);
}

/// Ranks 0 and 1 read an input chunk that they have overwritten, so they copy their input first. Rank 2 does
/// not, and each of them waited for another one.
#[test]
fn ranks_that_copy_their_input_first_and_others_complete_together() {
    use Step::{Copy, Recv, RecvReduce, Reduce, Send};
    let rank_0 = vec![
        RecvReduce { into: output(2), from: 1 },
        Send { from: output(0), to: 2 },
        RecvReduce { into: output(2), from: 2 },
        RecvReduce { into: scratch(1), from: 1 },
        Send { from: input(1), to: 1 },
        Send { from: input(1), to: 1 },
        Recv { into: output(0), from: 1 },
        Reduce { from: input(0), into: scratch(0) },
    ];
    let rank_1 = vec![
        Send { from: output(2), to: 0 },
        Send { from: output(2), to: 2 },
        Reduce { from: scratch(1), into: output(1) },
        Send { from: input(1), to: 2 },
        Send { from: input(1), to: 0 },
        RecvReduce { into: output(1), from: 0 },
        Copy { from: output(1), into: output(1) },
        RecvReduce { into: output(2), from: 2 },
        Send { from: output(0), to: 2 },
        Send { from: output(0), to: 0 },
        RecvReduce { into: output(1), from: 0 },
        Send { from: input(0), to: 2 },
        Send { from: input(0), to: 2 },
        Reduce { from: input(2), into: scratch(2) },
        Copy { from: output(2), into: scratch(2) },
        Copy { from: input(0), into: output(0) },
    ];
    let rank_2 = vec![
        Send { from: input(2), to: 0 },
        Send { from: input(2), to: 1 },
        Recv { into: scratch(2), from: 1 },
        RecvReduce { into: scratch(0), from: 0 },
        Recv { into: scratch(1), from: 1 },
        Recv { into: output(0), from: 1 },
        Recv { into: output(0), from: 1 },
        Copy { from: scratch(1), into: output(1) },
        Reduce { from: scratch(2), into: output(2) },
        RecvReduce { into: scratch(0), from: 1 },
    ];
    let schedules = [rank_0, rank_1, rank_2]
        .map(|steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps })
        .to_vec();
    let operation = Operation {
        collective: Collective::AllReduce,
        schedules,
        layout: Layout::even(5, CHUNKS),
        window: 4,
        fingerprint: 1,
    };
    let mut case = Case { world: World { hosts: vec![0, 0, 0], capacity: 1 }, operation };
    let expected = case.expected().expect("it completes");
    for hosts in [vec![1, 1, 0], vec![0, 1, 2]] {
        case.world.hosts = hosts;
        case.check(&expected).unwrap();
    }
}
