//! Short calls, emulated: their results are right in every order of events, calls that do not match are
//! noticed, and mistakes planted in the text of the kernel are caught.

use super::emulator::{compile_program, fibers};
use super::mutants::Mistake;
use crate::fake_gpu::or_skipped;
use maypole::algorithms::Algorithm;
use maypole::lower::{BufferPlaces, DeviceProgram, DeviceSlots, LoweringInput, lower_for_device};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Layout, Placement};
use maypole_kernels::packed::UNSTORED;
use std::process::{Command, Output};

/// A compiled program that makes short calls.
struct Calls(tempfile::TempDir);

/// How a run ended: the exit codes of `emulated/short_calls.cpp`.
const RIGHT: i32 = 0;
const GAVE_UP: i32 = 4;

impl Calls {
    /// The program with `edit` applied to the files of the kernel. `None` if there is no compiler.
    fn edited(edit: impl Fn(String) -> String) -> Option<Self> {
        // Few blocks of few threads, and flags that repeat soon.
        let numbers =
            ["SHORT_BLOCKS = 16, SHORT_THREADS = 512", "SHORT_BLOCKS = 4, SHORT_THREADS = 6"];
        let small = |text: String| edit(text).replace(numbers[0], numbers[1]);
        let options = ["-DFLAG_LOG=5", fibers()?];
        compile_program("emulated/short_calls.cpp", &options, small).map(Self)
    }

    /// Makes `calls` calls. Rank 1 makes call `other` in another way, unless it is -1.
    fn run(&self, seed: u64, ranks: u64, calls: u64, other: i64) -> i32 {
        self.output([seed as i64, ranks as i64, calls as i64, other]).status.code().unwrap()
    }

    fn output(&self, numbers: [i64; 4]) -> Output {
        let mut program = Command::new(self.0.path().join("emulator"));
        program.args(numbers.map(|it| it.to_string())).output().unwrap()
    }
}

#[test]
fn short_calls_are_right_in_every_order_of_events_emulated() {
    crate::skip::takes_turns!(4);
    let Some(program) = or_skipped(Calls::edited(|text| text)) else { return };
    for (ranks, seed) in (1..=5).flat_map(|ranks| (0..6).map(move |seed| (ranks, seed))) {
        assert_eq!(program.run(seed, ranks, 60, -1), RIGHT, "{ranks} ranks, seed {seed}");
    }
    // A flag is as old as a period, more than once.
    for seed in 0..4 {
        assert_eq!(program.run(seed, 2, 400, -1), RIGHT, "seed {seed}");
    }
}

#[test]
fn short_calls_that_do_not_match_are_noticed_emulated() {
    let Some(program) = or_skipped(Calls::edited(|text| text)) else { return };
    for (ranks, seed) in (2..=4).flat_map(|ranks| (0..8).map(move |seed| (ranks, seed))) {
        let end = program.run(seed, ranks, 8, seed as i64 % 5);
        assert_eq!(end, GAVE_UP, "{ranks} ranks, seed {seed}");
    }
}

/// Each of these must be seen by some seed.
#[test]
fn mistakes_in_short_calls_are_caught_emulated() {
    crate::skip::takes_turns!(4);
    for mistake in Mistake::found_by(&["short"], false) {
        let Some(program) = mistake.planted(|plant| Calls::edited(plant)) else { return };
        // Flags are old after many calls.
        let calls = if mistake.name == "old flags stay" { 800 } else { 150 };
        let mut ends = (0..40).map(|seed| program.run(seed, 2 + seed % 3, calls, -1));
        assert!(ends.any(|end| end != RIGHT), "{} is caught by no seed", mistake.name);
    }
}

/// Bytes and lines read and written in a call, and barriers, by the exchange that it is lowered to.
fn law(kind: u64, count: usize, is_in_place: bool, world: usize) -> [u64; 5] {
    let (collective, algorithm) = [
        (Collective::AllReduce, Algorithm::OneShot),
        (Collective::AllGather, Algorithm::Direct),
        (Collective::AllToAll, Algorithm::Direct),
        (Collective::ReduceScatter, Algorithm::Direct),
    ][kind as usize];
    let schedules = algorithm.schedules(collective, world).unwrap();
    let elements = if kind == 0 { count } else { count * world };
    let layout = Layout::even(elements, schedules[0].chunks);
    let request = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &layout,
        element: 4,
        boards: &Boards::new(&vec![0; world]),
        window: usize::MAX,
        fingerprint: 1,
    };
    let of_rank = |me| {
        let start = |held| layout.held(held).start * 4;
        let together = (start(collective.input(me)), start(collective.output(me)));
        let (placement, (input, output)) = match is_in_place {
            true => (Placement::InPlace, together),
            false => (Placement::Apart, (0, usize::MAX / 2)),
        };
        let slots = DeviceSlots { bytes: 64 << 10, count: 16 };
        let program = lower_for_device(&request, slots, me, placement).unwrap();
        let places = BufferPlaces { input, output };
        let exchange = DeviceProgram::exchange(&program, me, places).expect("it is one");
        let bytes = u64::from(exchange.bytes);
        let lines = bytes.div_ceil(8);
        let parts = &exchange.from[..world];
        let read = 1 + parts.iter().filter(|from| **from != exchange.from[me]).count() as u64;
        let stored = exchange.into.iter().filter(|into| **into != UNSTORED).count() as u64;
        let others = (world as u64 - 1) * lines;
        // Blocks have six threads, which pass two barriers.
        [read * bytes, stored * bytes, others, others, lines.div_ceil(6) * 6 * 2]
    };
    (0..world).map(of_rank).fold([0; 5], |sum, it| std::array::from_fn(|at| sum[at] + it[at]))
}

#[test]
fn short_calls_move_as_much_as_their_exchanges_say_emulated() {
    let Some(program) = or_skipped(Calls::edited(|text| text)) else { return };
    let mut kinds = [false; 8];
    for (ranks, seed) in [2, 4].into_iter().flat_map(|ranks| (0..40).map(move |it| (ranks, it))) {
        let text = String::from_utf8(program.output([seed, ranks, 1, -1]).stdout).unwrap();
        let numbers: Vec<u64> = text.split(' ').map(|it| it.parse().unwrap()).collect();
        let [kind, count, is_in_place, counts @ ..] = &numbers[..] else { panic!("{text}") };
        if *count > 0 {
            let said = law(*kind, *count as usize, *is_in_place == 1, ranks as usize);
            assert_eq!(*counts, said, "kind {kind} of {count}, {ranks} ranks, {is_in_place}");
            kinds[(*kind * 2 + *is_in_place) as usize] = true;
        }
    }
    assert_eq!(kinds, [true; 8], "every kind of call is counted");
}
