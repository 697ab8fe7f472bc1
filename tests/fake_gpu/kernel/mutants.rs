//! Mistakes planted in the text of the kernel. Each must end in wrong bytes, in a deadlock, or in another
//! failure that the kernel itself does not have.

use super::case::Case;
use super::disturbed::{
    BARRIERS, CROSSED, FAILURE, MANY_STEPS, OVERLAPPING, REFUSED, Scenario, UNEQUAL,
};
use super::emulator::{Emulator, Failure, Grid, Machine, Protocol, planted};
use crate::fake_gpu::or_skipped;
use maypole::algorithms::Algorithm;
use maypole::lower::DeviceSlots;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A call of four ranks with numbers of f32, in windows of 200 bytes if it has some.
fn sum_of_four(algorithm: Algorithm, collective: Collective, count: usize, salt: u64) -> Case {
    let schedules = algorithm.schedules(collective, 4).unwrap();
    Case::new(collective, schedules, count, 200, salt * 100 + count as u64)
        .with_type(DataType::F32, BinaryOp::Sum)
}

fn in_both_placements(apart: &[Case]) -> Vec<Case> {
    let in_place = apart.iter().cloned().map(|it| Case { placement: Placement::InPlace, ..it });
    apart.iter().cloned().chain(in_place).collect()
}

/// Calls in which every rule of the kernel matters: many windows in few slots, several sources
/// whose order matters, several calls in a row.
pub(crate) fn sensitive_cases(salt: u64) -> Vec<Case> {
    let mut cases = in_both_placements(&[
        sum_of_four(Algorithm::Ring, Collective::AllReduce, 901, salt),
        sum_of_four(Algorithm::OneShot, Collective::AllReduce, 902, salt),
        sum_of_four(Algorithm::RecursiveDoubling, Collective::AllGather, 904, salt),
        sum_of_four(Algorithm::Linear, Collective::Broadcast { root: 1 }, 3000, salt),
        sum_of_four(Algorithm::ReduceScatterGather, Collective::Reduce { root: 2 }, 905, salt),
    ]);
    cases.sort_by_key(|case| case.slots.bytes);
    cases
}

/// Calls in which ranks read one another's buffers, and what others have stored there.
pub(crate) fn reaching_cases(salt: u64) -> Vec<Case> {
    let apart = [
        sum_of_four(Algorithm::TwoShot, Collective::AllReduce, 4001, salt),
        sum_of_four(Algorithm::Direct, Collective::AllGather, 4004, salt),
        sum_of_four(Algorithm::Direct, Collective::ReduceScatter, 4008, salt),
        sum_of_four(Algorithm::Linear, Collective::Broadcast { root: 1 }, 4002, salt),
    ];
    let slots = DeviceSlots { bytes: 1024, count: 4 };
    let reaching = |case: Case| Case { slots, ..case }.reaching().expect("all read all buffers");
    in_both_placements(&apart).into_iter().map(reaching).collect()
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
const MOVE: &str = "execute<T, Op>(self, data, step, mine.bytes);";

/// A mistake: its replacements in the text of the kernel, and the runs that must each detect it.
type Mistake = (&'static str, &'static [(&'static str, &'static str)], &'static [Runs]);

/// Runs of the kernel, of which one must end wrongly.
enum Runs {
    Sensitive(Protocol),
    /// Over the buffers of all ranks.
    Reaching,
    /// Many calls by lines, so that flags repeat.
    Repeating,
    Disturbed(&'static Scenario, Protocol),
}
use Protocol::{LowLatency, Simple};
use Runs::{Disturbed, Reaching, Repeating, Sensitive};

impl Runs {
    /// True if some seed shows the mistake.
    fn notice(&self, emulator: &Emulator) -> bool {
        match self {
            Sensitive(protocol) => is_caught(emulator, *protocol, |seed| {
                let cases = sensitive_cases(seed);
                cases.chunk_by(|a, b| a.slots == b.slots).map(|alike| (0, alike.to_vec())).collect()
            }),
            Reaching => is_caught(emulator, Simple, |seed| vec![(0, reaching_cases(seed))]),
            Repeating => {
                is_caught(emulator, LowLatency, |seed| vec![calls_when_flags_repeat(seed)])
            }
            Disturbed(scenario, protocol) => {
                let failure = scenario.first_failure(emulator, *protocol, 0..40);
                failure.is_some_and(|(_, end)| {
                    !matches!(end, Err(Failure::GaveUp { .. } | Failure::Race(_)))
                })
            }
        }
    }
}

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

/// Asserts that each of the runs shows the mistake. `None` if there is no compiler.
fn check((name, edits, runs): &Mistake) -> Option<()> {
    let emulator = planted(name, edits, |plant| Emulator::edited(plant))?;
    for (nth, runs) in runs.iter().enumerate() {
        assert!(runs.notice(&emulator), "runs {nth} notice nothing: {name}");
    }
    Some(())
}

#[test]
fn every_planted_mistake_is_caught_emulated() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(mistake) = MISTAKES.get(next.fetch_add(1, Ordering::Relaxed)) {
            if or_skipped(check(mistake)).is_none() {
                return;
            }
        }
    };
    std::thread::scope(|threads| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores).for_each(|_| drop(threads.spawn(work)));
    });
}

const HAS_FAILED: (&str, &str) = ("self.failed = failed;", "self.failed = failed * 0;");
const OVERLAPS: (&str, &str) = ("self.overlaps = taken != 0;", "self.overlaps = taken * 0 != 0;");
/// The mark separates calls of other numbers, so it would hide the effect of some mistakes.
const UNNUMBERED: (&str, &str) = (
    "    u32 call = fingerprint + number * 0x9e3779b1u;",
    "    u32 call = fingerprint + number * 0;",
);

const MISTAKES: &[Mistake] = &[
    (
        "a reader that does not wait for the publication",
        &[(
            "    u64 value = await(self, data, arrived, target >> MARK_LOG << MARK_LOG, peer);",
            "    u64 value = load_acquire(arrived);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "a publication that is announced before it is written",
        &[(
            MOVE,
            "for (u32 reader = 0; reader < self.launch.ranks && threadIdx.x == 0; reader++) {
            if (step.fold->audience >> reader & 1) publish(
                self.peers[reader].mailbox.arrived
                    + arrived_of(self, self.launch.me, step.position),
                arrival_of(self, step.position));
        }
        execute<T, Op>(self, data, step, mine.bytes);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "a writer that takes a slot one publication too early",
        &[("position + 1 - slots : 0", "position - slots : 0")],
        &[Sensitive(Simple)],
    ),
    (
        "a line of which only one flag is compared",
        &[("first == flag && second == flag", "second == flag")],
        &[Sensitive(LowLatency)],
    ),
    (
        "sources from the last to the first",
        &[(
            "next.bits = eights[nth];
                if (first + nth == 0) {",
            "next.bits = eights[nth == 0 || first > 0 ? nth : left - nth];
                if (first + nth == 0) {",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "lanes whose pieces of a slot overlap",
        &[(
            "return self.launch.slot_bytes / self.launch.room / 16 * 16; }",
            "return self.launch.slot_bytes * 0 + 48; }",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "sources from the last to the first, sixteen bytes at a time",
        &[(
            "next[nth].load(data.from[nth] + at, stride);",
            "next[nth].load(data.from[Sources - nth] + at, stride);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "sources from the last to the first, two at a time",
        &[(
            "next[1].load(data.from[nth] + at, stride);",
            "next[1].load(data.from[count - nth] + at, stride);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "rows that are fetched behind the last ones",
        &[("at + (2 * Rows - 1) * stride < end", "at + (Rows - 1) * stride < end")],
        &[Reaching],
    ),
    (
        "a source that is fetched behind the last one",
        &[("if (nth + 1 < count && fetches) prefetch_rows", "prefetch_rows")],
        &[Sensitive(Simple)],
    ),
    (
        "writers that are told at the end, though they wait for a slot before",
        &[("if (self.launch.tells_late) {", "if (true) {")],
        &[Sensitive(Simple)],
    ),
    (
        "audiences that are not kept for the next call",
        &[("        audiences[slot] = self.audiences[slot];", "        audiences[slot] = 0;")],
        &[Sensitive(Simple)],
    ),
    ("flags that are not wiped before they repeat", &[("wipe(self, data);", "")], &[Repeating]),
    (
        "flags that are wiped when a reader may look for them already",
        &[("(FLAG_LOG - 1);", "FLAG_LOG;")],
        &[Repeating],
    ),
    (
        "a walk that begins though the host has ended all",
        &[HAS_FAILED],
        &[Disturbed(&REFUSED, Simple)],
    ),
    (
        "a call that begins behind one that failed",
        &[HAS_FAILED, OVERLAPS, UNNUMBERED],
        &[Disturbed(&FAILURE, Simple), Disturbed(&FAILURE, LowLatency)],
    ),
    (
        "lines that do not tell one call from another",
        &[("    u32 bits = mark >> (MARK_LOG - LINE_MARK_LOG);", "    u32 bits = mark * 0;")],
        &[Disturbed(&CROSSED, LowLatency), Disturbed(&UNEQUAL, LowLatency)],
    ),
    (
        "counters that do not tell one call from another",
        &[(
            "return (position + 1) << MARK_LOG | self.mark;",
            "return (position + 1) << MARK_LOG | self.mark * 0;",
        )],
        &[Disturbed(&CROSSED, Simple), Disturbed(&UNEQUAL, Simple)],
    ),
    (
        "a walk that lets the next one begin before it has counted",
        &[
            (
                "    if (is_done) count(self);",
                "    if (is_done && threadIdx.x == 0) {
        publish(counts_of(self.launch, self.lane) + self.launch.ranks + 1, 0);
        for (int i = 0; i < 30; i++) PAUSE();
    }
    __syncthreads();
    if (is_done) count(self);",
            ),
            UNNUMBERED,
        ],
        &[Disturbed(&OVERLAPPING, LowLatency)],
    ),
    (
        "a walk that never lets the next one begin",
        &[("        publish(counts_of(launch, self.lane) + launch.ranks + 1, 0);", "")],
        &[Sensitive(Simple)],
    ),
    (
        "a lane that writes its report over the first one",
        &[(
            "    u64 first = set_once(launch.failed, report);",
            "    u64 first = load_relaxed(launch.failed);
    fibers::give_way();
    store_relaxed(launch.failed, report);",
        )],
        &[Disturbed(&CROSSED, LowLatency)],
    ),
    (
        "an empty publication that is not awaited",
        &[("if (parts.whole.bytes > 0) return", "if (parts.whole.bytes + 1 > 0) return")],
        &[Disturbed(&BARRIERS, LowLatency)],
    ),
    (
        "a counter that is not awaited",
        &[("if (waits) await_arrival(self", "if (waits && false) await_arrival(self")],
        &[Disturbed(&BARRIERS, Simple)],
    ),
    (
        "a writer that is told before its publication was read",
        &[(
            MOVE,
            "for (u32 at = threadIdx.x; at < step.fold->count; at += self.movers) {
            if (step.sources[at].place == BOARD) publish(
                self.peers[step.sources[at].peer].mailbox.consumed
                    + counter_of(self.launch, self.launch.me, self.lane),
                data.number[at]);
        }
        execute<T, Op>(self, data, step, mine.bytes);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "a post before the bytes are moved",
        &[(
            "wait_at(DONE + parity(last.nth), blockDim.x);",
            "arrive_at(DONE + parity(last.nth), blockDim.x);",
        )],
        &[Sensitive(Simple)],
    ),
    (
        "a step that writes over what the step before the last one left to post",
        &[
            ("wait_at(READY + parity(step.nth), blockDim.x);", "wait_at(READY, self.movers);"),
            ("arrive_at(READY + parity(step.nth), blockDim.x);", ""),
        ],
        &[Sensitive(Simple)],
    ),
    (
        "steps that have the same places for what they know",
        &[
            ("data = self.data[parity(step.nth)];", "data = self.data[0];"),
            ("data = self.data[parity(last.nth)];", "data = self.data[0];"),
        ],
        &[Sensitive(Simple)],
    ),
    (
        "a step that is given up where posters have been at the next barrier",
        &[("        leave_barriers(self, step.nth + 1);\n", "")],
        &[Disturbed(&MANY_STEPS, Simple)],
    ),
    (
        "posters that look at the waits of a later step",
        &[(
            "if (data.gives_up) return false;",
            "for (int i = 0; i < 4000; i++) PAUSE();
        if (data.waits != OK) return false;",
        )],
        &[Disturbed(&MANY_STEPS, Simple)],
    ),
    (
        "buffers that are read before their ranks have told where they are",
        &[("poll(self, &mine->begun, target, rank, self.report)", "begun")],
        &[Reaching],
    ),
    (
        "results that are read in buffers before they are there",
        &[(
            "    if (source.place < BOARD || source.publication",
            "    if (source.place != BOARD || source.publication",
        )],
        &[Reaching],
    ),
    (
        "results of which only the first one is awaited",
        &[("last.first + last.count - first->first : 0;", "first->count + 0 * last.count : 0;")],
        &[Reaching],
    ),
    (
        "a call that ends while others read its buffers",
        &[("u64 done = poll(", "u64 done = calls;\n        if (calls == 0) poll(")],
        &[Reaching],
    ),
];
