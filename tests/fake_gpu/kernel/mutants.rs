//! Mistakes planted in the text of the kernel. Each must end in wrong bytes, in a deadlock, or in another
//! failure that the kernel itself does not have.

use super::case::Case;
use super::disturbed::{
    BARRIERS, CROSSED, FAILURE, MANY_STEPS, OVERLAPPING, REFUSED, Scenario, UNEQUAL,
};
use super::emulator::{Emulator, Failure, Grid, Machine, Protocol};
use crate::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};

/// Calls in which every rule of the kernel matters: many windows in few slots, several sources
/// whose order matters, several calls in a row.
pub(crate) fn sensitive_cases(salt: u64) -> Vec<Case> {
    let of = |algorithm: Algorithm, collective: Collective, world, count| {
        let schedules = algorithm.schedules(collective, world).unwrap();
        Case::new(collective, schedules, count, 200, salt * 100 + count as u64)
            .with_type(DataType::F32, BinaryOp::Sum)
    };
    let apart = [
        of(Algorithm::Ring, Collective::AllReduce, 4, 901),
        of(Algorithm::OneShot, Collective::AllReduce, 4, 902),
        of(Algorithm::RecursiveDoubling, Collective::AllGather, 4, 904),
        of(Algorithm::Linear, Collective::Broadcast { root: 1 }, 4, 3000),
        of(Algorithm::ReduceScatterGather, Collective::Reduce { root: 2 }, 4, 905),
    ];
    let in_place = apart.clone().map(|case| Case { placement: Placement::InPlace, ..case });
    let mut cases = [apart, in_place].concat();
    cases.sort_by_key(|case| case.slots.bytes);
    cases
}

/// Long calls, with short ones between them that leave most lines of a slot alone. A long call begins
/// with the flags, when those repeat for the first time, that the last publications of the one before
/// have left in the slots. Returned with the publications before the first call.
pub(crate) fn calls_when_flags_repeat(salt: u64) -> (u64, Vec<Case>) {
    const PERIOD: u64 = 256;
    let schedules = Algorithm::Ring.schedules(Collective::AllReduce, 3).unwrap();
    let new = |nth: u64, count| {
        Case::new(Collective::AllReduce, schedules.clone(), count, 200, salt * 1000 + nth)
            .with_type(DataType::F32, BinaryOp::Sum)
    };
    let slots = new(0, 900).slots;
    let of = |nth, count| Case { slots, ..new(nth, count) };
    let publications = |case: &Case| case.lower_for_device(0).totals[0];
    let (long, short) = (publications(&of(0, 900)), publications(&of(0, 3)));
    let slots = slots.count as u64;
    let between = (PERIOD - slots) / short;
    assert_eq!(slots + between * short, PERIOD, "short calls fill the period");
    let count = |nth: u64| if nth.is_multiple_of(between + 1) { 900 } else { 3 };
    (PERIOD - (long - slots), (0..=2 * (between + 1)).map(|nth| of(nth, count(nth))).collect())
}

/// Where the movers of a lane move the bytes of a step.
const MOVE: &str = "execute<T, Op>(self, data, step, mine.bytes, 0);";

/// True if some seed shows the mistake in one of its runs.
fn is_caught(
    emulator: &Emulator,
    protocol: Protocol,
    runs_of: impl Fn(u64) -> Vec<(u64, Vec<Case>)>,
) -> bool {
    (0..12).any(|seed| {
        let grid =
            [Grid { lanes: 1, threads: 3 }, Grid { lanes: 3, threads: 2 }][seed as usize % 2];
        runs_of(seed).iter().any(|(before, calls)| {
            let machine = Machine { grid, protocol, seed, before: *before };
            emulator.run(calls, machine).is_err()
        })
    })
}

fn check(name: &str, from: &str, to: &str, protocol: Protocol) {
    check_in(sensitive_runs, name, &[(from, to)], protocol);
}

fn sensitive_runs(seed: u64) -> Vec<(u64, Vec<Case>)> {
    let cases = sensitive_cases(seed);
    cases.chunk_by(|a, b| a.slots == b.slots).map(|alike| (0, alike.to_vec())).collect()
}

/// An emulator of the kernel with each text replaced by another one. `None` if there is no compiler.
fn with_mistake(name: &str, edits: &[(&str, &str)]) -> Option<Emulator> {
    let edited = std::cell::Cell::new(0);
    let edit = |text: String| {
        edits.iter().fold(text, |text, (from, to)| {
            edited.set(edited.get() + text.matches(from).count());
            text.replace(from, to)
        })
    };
    let emulator = Emulator::edited(edit);
    if emulator.is_none() {
        skip::skipped("there is no C++ compiler: 'c++' cannot be started");
        return None;
    }
    assert_eq!(edited.get(), edits.len(), "{name}: the text to change is in the kernel once");
    emulator
}

/// Asserts that some order of the scenario's events shows the mistake.
fn check_scenario(scenario: &Scenario, name: &str, edits: &[(&str, &str)], protocol: Protocol) {
    let Some(emulator) = with_mistake(name, edits) else { return };
    let failure = scenario.first_failure(&emulator, protocol, 0..40);
    use Failure::{CauseLost, Deadlock, MisusedBarrier, PassedBarrier, Wrong};
    let is_caught = matches!(
        failure,
        Some((
            _,
            Ok(()) | Err(CauseLost | Deadlock | MisusedBarrier | PassedBarrier | Wrong { .. })
        ))
    );
    assert!(is_caught, "{failure:?}: {name}, when {}", scenario.name);
}

fn check_in(
    runs_of: impl Fn(u64) -> Vec<(u64, Vec<Case>)>,
    name: &str,
    edits: &[(&str, &str)],
    protocol: Protocol,
) {
    let Some(emulator) = with_mistake(name, edits) else { return };
    assert!(is_caught(&emulator, protocol, runs_of), "nothing noticed: {name}");
}

#[test]
fn data_read_before_it_arrives_is_caught_emulated() {
    check(
        "a reader that does not wait for the publication",
        "    u64 value = await(self, data, arrived, target >> MARK_LOG << MARK_LOG, peer);",
        "    u64 value = load_acquire(arrived);",
        Protocol::Simple,
    );
}

#[test]
fn a_counter_ahead_of_its_data_is_caught_emulated() {
    check(
        "a publication that is announced before it is written",
        MOVE,
        "for (u32 reader = 0; reader < self.launch.ranks && threadIdx.x == 0; reader++) {
            if (step.fold->audience >> reader & 1) publish(
                self.peers[reader].mailbox.arrived
                    + arrived_of(self, self.launch.me, step.position),
                arrival_of(self, step.position));
        }
        execute<T, Op>(self, data, step, mine.bytes, 0);",
        Protocol::Simple,
    );
}

#[test]
fn a_credit_given_early_is_caught_emulated() {
    check(
        "a writer that takes a slot one publication too early",
        "position + 1 - slots : 0",
        "position - slots : 0",
        Protocol::Simple,
    );
}

#[test]
fn half_of_a_line_is_caught_emulated() {
    check(
        "a line of which only one flag is compared",
        "first == flag && second == flag",
        "second == flag",
        Protocol::LowLatency,
    );
}

#[test]
fn sources_in_another_order_are_caught_emulated() {
    check(
        "sources from the last to the first",
        "report = read<T>(self, data, sources[nth], nth, at, count, next);",
        "nth = step.fold->count - nth;
            report = read<T>(self, data, sources[nth], nth, at, count, next);
            nth = step.fold->count - nth;",
        Protocol::Simple,
    );
}

#[test]
fn lanes_without_pieces_of_their_own_are_caught_emulated() {
    check(
        "lanes whose pieces of a slot overlap",
        "return self.launch.slot_bytes / self.lanes / 16 * 16; }",
        "return self.launch.slot_bytes * 0 + 48; }",
        Protocol::Simple,
    );
}

#[test]
fn whole_packs_in_another_order_are_caught_emulated() {
    check(
        "sources from the last to the first, sixteen bytes at a time",
        "next[row].bits = *(const Sixteen*)(data.from[nth] + at + row * step);",
        "next[row].bits = *(const Sixteen*)(data.from[count - nth] + at + row * step);",
        Protocol::Simple,
    );
}

#[test]
fn credits_told_before_the_call_ends_are_needed_emulated() {
    check(
        "writers that are told at the end, though they wait for a slot before",
        "if (self.launch.tells_late) {",
        "if (true) {",
        Protocol::Simple,
    );
}

#[test]
fn a_reader_that_is_forgotten_between_calls_is_caught_emulated() {
    check(
        "audiences that are not kept for the next call",
        "        audiences[slot] = self.audiences[slot];",
        "        audiences[slot] = 0;",
        Protocol::Simple,
    );
}

#[test]
fn old_flags_that_look_new_are_caught_emulated() {
    let protocol = Protocol::LowLatency;
    let runs = |seed| vec![calls_when_flags_repeat(seed)];
    let name = "flags that are not wiped before they repeat";
    check_in(runs, name, &[("wipe(self, data);", "")], protocol);
    let name = "flags that are wiped when a reader may look for them already";
    check_in(runs, name, &[("(FLAG_LOG - 1);", "FLAG_LOG;")], protocol);
}

const HAS_FAILED: (&str, &str) = ("self.failed = failed;", "self.failed = failed * 0;");
const OVERLAPS: (&str, &str) = ("self.overlaps = taken != 0;", "self.overlaps = taken * 0 != 0;");

#[test]
fn a_rank_that_walks_after_its_end_is_caught_emulated() {
    let name = "a walk that begins though the host has ended all";
    check_scenario(&REFUSED, name, &[HAS_FAILED], Protocol::Simple);
}

#[test]
fn a_rank_that_walks_after_a_failure_is_caught_emulated() {
    let name = "a call that begins behind one that failed";
    for protocol in [Protocol::Simple, Protocol::LowLatency] {
        check_scenario(&FAILURE, name, &[HAS_FAILED, OVERLAPS, UNNUMBERED], protocol);
    }
}

#[test]
fn lines_without_a_mark_are_caught_emulated() {
    let name = "lines that do not tell one call from another";
    let edit = ("    u32 bits = mark >> (MARK_LOG - LINE_MARK_LOG);", "    u32 bits = mark * 0;");
    for scenario in [CROSSED, UNEQUAL] {
        check_scenario(&scenario, name, &[edit], Protocol::LowLatency);
    }
}

#[test]
fn counters_without_a_mark_are_caught_emulated() {
    let name = "counters that do not tell one call from another";
    let edit = (
        "return (position + 1) << MARK_LOG | self.mark;",
        "return (position + 1) << MARK_LOG | self.mark * 0;",
    );
    for scenario in [CROSSED, UNEQUAL] {
        check_scenario(&scenario, name, &[edit], Protocol::Simple);
    }
}

/// The mark distinguishes calls of other numbers, so it would hide the effects of these mistakes.
const UNNUMBERED: (&str, &str) = (
    "    u32 call = fingerprint + number * 0x9e3779b1u;",
    "    u32 call = fingerprint + number * 0;",
);

const COUNT: &str = "    if (is_done) count(self);";

#[test]
fn a_lock_that_is_free_early_is_caught_emulated() {
    let name = "a walk that lets the next one begin before it has counted";
    let early = "    if (is_done && threadIdx.x == 0) {
        publish(counts_of(self.launch, self.lane) + self.launch.ranks + 1, 0);
        for (int i = 0; i < 30; i++) PAUSE();
    }
    __syncthreads();
    if (is_done) count(self);";
    check_scenario(&OVERLAPPING, name, &[(COUNT, early), UNNUMBERED], Protocol::LowLatency);
}

#[test]
fn a_lock_that_is_never_free_is_caught_emulated() {
    check(
        "a walk that never lets the next one begin",
        "        publish(counts_of(launch, self.lane) + launch.ranks + 1, 0);",
        "",
        Protocol::Simple,
    );
}

#[test]
fn a_cause_that_is_overwritten_is_caught_emulated() {
    let name = "a lane that writes its report over the first one";
    let edit = (
        "    u64 first = set_once(launch.failed, report);",
        "    u64 first = load_relaxed(launch.failed);
    fibers::give_way();
    store_relaxed(launch.failed, report);",
    );
    check_scenario(&CROSSED, name, &[edit], Protocol::LowLatency);
}

#[test]
fn a_barrier_that_orders_nothing_is_caught_emulated() {
    let name = "an empty publication that is not awaited";
    let edit = ("if (parts.whole.bytes > 0) return", "if (parts.whole.bytes + 1 > 0) return");
    check_scenario(&BARRIERS, name, &[edit], Protocol::LowLatency);
    let name = "a counter that is not awaited";
    let edit =
        ("if (launch.protocol == SIMPLE) await_arrival(self", "if (false) await_arrival(self");
    check_scenario(&BARRIERS, name, &[edit], Protocol::Simple);
}

#[test]
fn a_credit_given_before_the_copy_is_caught_emulated() {
    check(
        "a writer that is told before its publication was read",
        MOVE,
        "for (u32 at = threadIdx.x; at < step.fold->count; at += self.movers) {
            if (step.sources[at].place == BOARD) publish(
                self.peers[step.sources[at].peer].mailbox.consumed
                    + counter_of(self.launch.me, self.lane, self.lanes),
                data.number[at]);
        }
        execute<T, Op>(self, data, step, mine.bytes, 0);",
        Protocol::Simple,
    );
}

#[test]
fn posters_and_movers_that_do_not_wait_are_caught_emulated() {
    let wait = "wait_at(DONE + parity(last.nth), blockDim.x);";
    let pass = "arrive_at(DONE + parity(last.nth), blockDim.x);";
    check("a post before the bytes are moved", wait, pass, Protocol::Simple);
    let name = "a step that writes over what the step before the last one left to post";
    let edits = [
        ("wait_at(READY + parity(step.nth), blockDim.x);", "wait_at(READY, self.movers);"),
        ("arrive_at(READY + parity(step.nth), blockDim.x);", ""),
    ];
    check_in(sensitive_runs, name, &edits, Protocol::Simple);
    let name = "steps that have the same places for what they know";
    let edits = [
        ("data = self.data[parity(step.nth)];", "data = self.data[0];"),
        ("data = self.data[parity(last.nth)];", "data = self.data[0];"),
    ];
    check_in(sensitive_runs, name, &edits, Protocol::Simple);
}

#[test]
fn barriers_that_are_left_half_full_are_caught_emulated() {
    let name = "a step that is given up where posters have been at the next barrier";
    let edit = ("        leave_barriers(self, step.nth + 1);\n", "");
    check_scenario(&MANY_STEPS, name, &[edit], Protocol::Simple);
    let name = "posters that look at the waits of a later step";
    let late = "for (int i = 0; i < 4000; i++) PAUSE();
        if (data.waits != OK) return false;";
    let edit = ("if (data.gives_up) return false;", late);
    check_scenario(&MANY_STEPS, name, &[edit], Protocol::Simple);
}
