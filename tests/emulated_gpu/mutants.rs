//! Mistakes planted in the text of the kernel. Each must end in wrong bytes or in a deadlock.

use crate::case::{Case, cpu};
use crate::emulator::{Emulator, Grid, Machine, Protocol};
use crate::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};

/// Calls in which every rule of the kernel matters: many windows in few slots, several sources whose
/// order matters, several calls in a row.
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
    cases.sort_by_cached_key(|case| case.class().bytes());
    cases
}

/// True if some seed shows the mistake.
fn is_caught(emulator: &Emulator, protocol: Protocol) -> bool {
    (0..12).any(|seed| {
        let cases = sensitive_cases(seed);
        let grid =
            [Grid { lanes: 1, threads: 3 }, Grid { lanes: 3, threads: 2 }][seed as usize % 2];
        cases.chunk_by(|a, b| a.class() == b.class()).any(|alike| {
            let machine = Machine { grid, protocol, seed, before: 0 };
            emulator.run(alike, machine).as_ref() != Ok(&cpu(alike))
        })
    })
}

fn check(name: &str, from: &str, to: &str, protocol: Protocol) {
    let edited = std::cell::Cell::new(0);
    let edit = |text: String| {
        edited.set(edited.get() + text.matches(from).count());
        text.replace(from, to)
    };
    let Some(emulator) = Emulator::edited(edit) else {
        return skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    };
    assert_eq!(edited.get(), 1, "{name}: the text to change is in the kernel once");
    assert!(is_caught(&emulator, protocol), "nothing noticed: {name}");
}

#[test]
fn data_read_before_it_arrives_is_caught_emulated() {
    check(
        "a reader that waits for the publication before",
        "counter_of(self, source.peer), position + 1, source.peer);",
        "counter_of(self, source.peer), position, source.peer);",
        Protocol::Simple,
    );
}

#[test]
fn a_counter_ahead_of_its_data_is_caught_emulated() {
    check(
        "a publication that is announced before it is written",
        "    u32 status = execute<T, Op>(self, fold, sources, mine.bytes);",
        "    for (u32 reader = 0; reader < self.ranks && threadIdx.x == 0; reader++) {
            if (fold.audience >> reader & 1) publish(
                self.launch.mailboxes[reader].arrived + counter_of(self, self.me),
                self.position + 1);
        }
        u32 status = execute<T, Op>(self, fold, sources, mine.bytes);",
        Protocol::Simple,
    );
}

#[test]
fn a_credit_given_early_is_caught_emulated() {
    check(
        "a writer that takes a slot one publication too early",
        "self.position + 1 - launch.slots : 0",
        "self.position - launch.slots : 0",
        Protocol::Simple,
    );
}

#[test]
fn half_of_a_line_is_caught_emulated() {
    check(
        "a line of which only one flag is compared",
        "(u32)(low >> 32) == flag && (u32)(high >> 32) == flag",
        "(u32)(high >> 32) == flag",
        Protocol::LowLatency,
    );
}

#[test]
fn sources_in_another_order_are_caught_emulated() {
    check(
        "sources from the last to the first",
        "status = read<T>(self, sources[nth], nth, at, count, next);",
        "status = read<T>(self, sources[fold.count - nth], fold.count - nth, at, count, next);",
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
