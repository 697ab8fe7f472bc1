//! Bytes, lines, flags and barriers of each kind of call, counted by the emulator. They are as many as the lowered
//! programs say: the law holds for how much is moved, and not only for where it ends.

use super::ONE_LANE;
use super::case::Case;
use super::emulator;
use super::emulator::{Counts, Disturbance, Emulator, Grid, Machine, Protocol};
use super::mutants::Mistake;
use maypole::algorithms::Algorithm;
use maypole::lower::{DeviceSlots, FoldSource, SourceLocation};
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};
use std::collections::BTreeSet;

/// Threads of the only lane, more than ranks.
const THREADS: u64 = 8;
const ELEMENTS: usize = 6000;

/// The counts of rank `rank` by its program. No source is where its fold stores.
fn law(case: &Case, rank: usize, protocol: Protocol) -> Counts {
    let program = case.lower_for_device(rank);
    let windows = u64::from(program.windows);
    let by_lines = protocol == Protocol::LowLatency;
    let writers = |sources: &[FoldSource]| {
        let told = sources.iter().filter(|it| it.from == SourceLocation::Board).map(|it| it.peer);
        told.collect::<BTreeSet<_>>().len() as u64
    };
    let (mut counts, mut credits) = (Counts::default(), 0);
    for fold in &program.folds {
        let sources = &program.sources[fold.first as usize..][..usize::from(fold.count)];
        let bytes: u64 = (0..program.windows).map(|k| fold.extent.window(k).1 as u64).sum();
        let lines = bytes.div_ceil(8);
        let is_line = |it: &&FoldSource| by_lines && it.from == SourceLocation::Board;
        let of_lines = sources.iter().filter(is_line).count() as u64;
        let publishes = fold.audience != 0;
        counts.lines_read += of_lines * lines;
        counts.read += (sources.len() as u64 - of_lines) * bytes;
        counts.lines_written += u64::from(publishes && by_lines) * lines;
        counts.written += u64::from(fold.into.is_some()) * bytes;
        counts.written += u64::from(publishes && !by_lines) * bytes;
        counts.flags += u64::from(!by_lines) * windows * u64::from(fold.audience.count_ones());
        credits += windows * writers(sources);
    }
    let fits = program.totals.iter().all(|total| *total <= case.slots.count as u64);
    // The last flag is the lock of the lane.
    counts.flags += if fits && by_lines { writers(&program.sources) } else { credits } + 1;
    counts.barriers = THREADS * (5 + 2 * windows * program.folds.len() as u64);
    counts
}

fn total(all: impl Iterator<Item = Counts>) -> Counts {
    let add = |a: Counts, b: Counts| Counts {
        read: a.read + b.read,
        written: a.written + b.written,
        lines_read: a.lines_read + b.lines_read,
        lines_written: a.lines_written + b.lines_written,
        flags: a.flags + b.flags,
        barriers: a.barriers + b.barriers,
        rounds: a.rounds + b.rounds,
    };
    all.fold(Counts::default(), add)
}

/// The calls of each kind among `world` ranks, and the algorithms by which they run.
fn calls(world: usize) -> Vec<Case> {
    let kinds = [
        (Collective::AllReduce, Algorithm::TwoShot),
        (Collective::AllGather, Algorithm::Direct),
        (Collective::ReduceScatter, Algorithm::Direct),
        (Collective::Broadcast { root: 1 }, Algorithm::Linear),
        (Collective::Reduce { root: 0 }, Algorithm::Linear),
    ];
    let case = |(collective, algorithm): (Collective, Algorithm)| {
        let schedules = algorithm.schedules(collective, world).unwrap();
        let case = Case::new(collective, schedules, ELEMENTS, 4096, world as u64);
        let slots = DeviceSlots { bytes: 4096, count: 4 };
        Case { slots, ..case.with_type(DataType::F32, BinaryOp::Sum) }
    };
    kinds.map(case).to_vec()
}

const MACHINE: Machine = Machine { grid: Grid { lanes: 1, threads: THREADS }, ..ONE_LANE };

fn counted(emulator: &Emulator, case: &Case, protocol: Protocol) -> Counts {
    let machine = Machine { protocol, ..MACHINE };
    let calls = std::slice::from_ref(case);
    let (counts, end) = emulator.run_counted(calls, machine, &Disturbance::default());
    assert_eq!(end, Ok(()), "{case:?}");
    counts
}

/// The first call whose counts are not those of the programs.
fn first_difference(emulator: &Emulator) -> Option<String> {
    for case in [2, 4].into_iter().flat_map(calls) {
        for protocol in [Protocol::Simple, Protocol::LowLatency] {
            let counts = counted(emulator, &case, protocol);
            let said = total((0..case.world()).map(|rank| law(&case, rank, protocol)));
            let said = Counts { rounds: counts.rounds, ..said };
            println!("{case:?}, {protocol:?}: {counts:?}");
            if counts != said {
                return Some(format!("{case:?}, {protocol:?}: {counts:?}, not {said:?}"));
            }
        }
    }
    None
}

#[test]
fn calls_move_and_post_as_much_as_their_programs_say_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulator() else { return };
    assert_eq!(first_difference(emulator), None);
    let edits = [("(self.launch.tells_late) {", "(false) {")];
    let mistake = Mistake::new("each step tells its writers", &edits);
    let edited = mistake.planted(|plant| Emulator::edited(plant)).unwrap();
    assert!(first_difference(&edited).is_some(), "{}", mistake.name);
}

/// A one-shot all-reduce in one window: every fold of it has one source or one of each rank.
fn one_shot(world: usize, bytes: usize) -> Case {
    let schedules = Algorithm::OneShot.schedules(Collective::AllReduce, world).unwrap();
    let case = Case::new(Collective::AllReduce, schedules, bytes / 4, bytes, world as u64);
    let slots = DeviceSlots { bytes, count: 4 };
    Case { slots, ..case.with_type(DataType::F32, BinaryOp::Sum) }
}

/// Lines cost bytes and slots cost flags, which the limit between them (`src/cuda/plan.rs`) weighs. Threads await the
/// loads of up to eight sources together.
#[test]
fn lines_cost_bytes_slots_cost_flags_and_loads_are_awaited_together_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulator() else { return };
    let movers = THREADS - 1;
    for (world, bytes) in [2, 4, 8].into_iter().flat_map(|it| [(it, 32 << 10), (it, 64 << 10)]) {
        let case = one_shot(world as usize, bytes as usize);
        let lines = counted(emulator, &case, Protocol::LowLatency);
        let slots = counted(emulator, &case, Protocol::Simple);
        let of_others = world * (world - 1) * bytes;
        let all = world * bytes;
        println!(
            "{world} ranks, {bytes} bytes: {} bytes of lines and {} of slots of others a byte, \
             with {} and {} flags, and {} rounds of loads in slots",
            lines.lines_read * 16 / all,
            (slots.read - lines.read) / all,
            lines.flags,
            slots.flags,
            slots.rounds
        );
        assert_eq!((lines.lines_read * 16, slots.read - lines.read), (2 * of_others, of_others));
        assert_eq!(slots.flags - lines.flags, world * (world - 1), "counters of publications");
        // The first fold has one source, of which eight rows are loaded together, and at the end up to four.
        let rows = bytes.div_ceil(16 * movers);
        let of_first = rows / 8 + (rows % 8).div_ceil(4);
        let of_all = match world {
            2 => of_first,
            4 => rows.div_ceil(4),
            _ => rows.div_ceil(2),
        };
        let most = world * movers * (of_first + of_all);
        assert!(
            (most - 2 * world * movers..=most).contains(&slots.rounds),
            "not {most}: {slots:?}"
        );
    }
    let edits = [("many, 1, AT_A_TIME>", "many, 1, 2>"), ("Most == AT_A_TIME", "Most == 2")];
    let one_by_one = Mistake::new("sources one after the other", &edits);
    let edited = one_by_one.planted(|plant| Emulator::edited(plant)).unwrap();
    let rounds =
        [emulator, &edited].map(|it| counted(it, &one_shot(8, 32 << 10), Protocol::Simple).rounds);
    println!("8 ranks, 32768 bytes: {rounds:?} rounds of loads, at a time and one after the other");
    assert!(rounds[0] * 3 < rounds[1]);
}
