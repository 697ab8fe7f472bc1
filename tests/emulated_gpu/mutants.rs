//! Mistakes planted in the text of the kernel. Each must end in wrong bytes or in a deadlock.

use crate::case::{Case, cpu};
use crate::emulator::{Emulator, Grid, Machine, Protocol};
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
            emulator.run(calls, machine).as_ref() != Ok(&cpu(calls))
        })
    })
}

fn check(name: &str, from: &str, to: &str, protocol: Protocol) {
    let runs = |seed| {
        let cases = sensitive_cases(seed);
        cases.chunk_by(|a, b| a.slots == b.slots).map(|alike| (0, alike.to_vec())).collect()
    };
    check_in(runs, name, from, to, protocol);
}

fn check_in(
    runs_of: impl Fn(u64) -> Vec<(u64, Vec<Case>)>,
    name: &str,
    from: &str,
    to: &str,
    protocol: Protocol,
) {
    let edited = std::cell::Cell::new(0);
    let edit = |text: String| {
        edited.set(edited.get() + text.matches(from).count());
        text.replace(from, to)
    };
    let Some(emulator) = Emulator::edited(edit) else {
        return skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    };
    assert_eq!(edited.get(), 1, "{name}: the text to change is in the kernel once");
    assert!(is_caught(&emulator, protocol, runs_of), "nothing noticed: {name}");
}

#[test]
fn data_read_before_it_arrives_is_caught_emulated() {
    check(
        "a reader that does not wait for the publication",
        "    u64 value = await(self, arrived, target >> MARK_LOG << MARK_LOG, peer);",
        "    u64 value = load_acquire(arrived);",
        Protocol::Simple,
    );
}

#[test]
fn a_counter_ahead_of_its_data_is_caught_emulated() {
    check(
        "a publication that is announced before it is written",
        "    u64 report = carry_out<T, Op>(",
        "    for (u32 reader = 0; reader < self.launch.ranks && threadIdx.x == 0; reader++) {
            if (fold.audience >> reader & 1) publish(
                self.peers[reader].mailbox.arrived + arrived_of(self, self.launch.me, position),
                arrival_of(self, position));
        }
        u64 report = carry_out<T, Op>(",
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
        "report = read<T>(self, sources[nth], nth, at, count, next);",
        "report = read<T>(self, sources[fold.count - nth], fold.count - nth, at, count, next);",
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
        "next[row].bits = *(const Sixteen*)(self.from[nth] + at + row * step);",
        "next[row].bits = *(const Sixteen*)(self.from[count - nth] + at + row * step);",
        Protocol::Simple,
    );
}

#[test]
fn credits_told_before_the_call_ends_are_needed_emulated() {
    check(
        "writers that are told at the end, though they wait for a slot before",
        "if (launch.tells_late) {",
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
    check_in(runs, name, "        wipe(self);", "", protocol);
    let name = "flags that are wiped when a reader may look for them already";
    check_in(runs, name, "(FLAG_LOG - 1);", "FLAG_LOG;", protocol);
}
