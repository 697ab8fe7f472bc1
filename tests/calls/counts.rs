//! Blocks of any lengths, also of length zero. Schedules name chunks and not counts, so the same
//! schedules are right for all of them.

use crate::common;
use crate::common::SeededRng;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, input, output};
use proptest::prelude::*;
use std::collections::HashMap;

/// The length of each chunk: equal in the buffers of all ranks, or, for an all-to-all, by sender
/// and receiver.
enum Counts {
    Alike(Layout),
    /// `[s][r]`: elements from rank `s` to rank `r`.
    Between(Vec<Vec<usize>>),
}

impl Counts {
    fn of(&self, rank: usize, span: Span, chunks: usize) -> usize {
        match self {
            Self::Alike(layout) => layout.range(span.chunk % chunks).len(),
            Self::Between(counts) => match span.buffer {
                Buffer::Input => counts[rank][span.chunk],
                Buffer::Output => counts[span.chunk][rank],
                Buffer::Scratch => panic!("chunks of scratch have no lengths of their own"),
            },
        }
    }
}

/// The contents of all spans, as vectors whose lengths are those of their chunks.
struct Vectors<'a> {
    counts: &'a Counts,
    schedules: &'a [Schedule],
    placement: Placement,
    memory: HashMap<(usize, Span), Vec<u64>>,
}

impl Vectors<'_> {
    fn home(&self, rank: usize, span: Span) -> (usize, Span) {
        (rank, common::home(span, self.placement))
    }

    fn read(&self, rank: usize, span: Span) -> Vec<u64> {
        self.memory[&self.home(rank, span)].clone()
    }

    fn write(&mut self, rank: usize, into: Span, mut value: Vec<u64>, reduce: bool) {
        assert_eq!(
            value.len(),
            self.counts.of(rank, into, self.schedules[rank].chunks),
            "rank {rank}, {into}"
        );
        if reduce {
            let before = self.read(rank, into);
            value = before.iter().zip(value).map(|(a, b)| a.wrapping_add(b)).collect();
        }
        self.memory.insert(self.home(rank, into), value);
    }
}

impl Meaning for Vectors<'_> {
    type Message = Vec<u64>;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> Vec<u64> {
        self.read(rank, from)
    }

    fn receive(
        &mut self,
        rank: usize,
        _: usize,
        into: Span,
        _: usize,
        message: Vec<u64>,
        reduce: bool,
    ) {
        self.write(rank, into, message, reduce);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        self.write(rank, into, self.read(rank, from), reduce);
    }
}

/// The input of one rank, one chunk.
fn numbers(symbol: Symbol, count: usize) -> Vec<u64> {
    let mut rng = SeededRng::new((symbol.rank * 1000 + symbol.chunk) as u64);
    (0..count).map(|_| rng.next_u64()).collect()
}

fn check(
    algorithm: Algorithm,
    collective: Collective,
    world: usize,
    counts: &Counts,
    placement: Placement,
) {
    let schedules = algorithm.schedules(collective, world).expect("it is in the table");
    let chunks = schedules[0].chunks;
    let mut vectors = Vectors { counts, schedules: &schedules, placement, memory: HashMap::new() };
    for (rank, chunk) in (0..world).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk))) {
        if collective.input(rank).contains(chunk) {
            let count = counts.of(rank, input(chunk), chunks);
            vectors
                .memory
                .insert(vectors.home(rank, input(chunk)), numbers(Symbol { rank, chunk }, count));
        }
    }
    walk(&schedules, placement, &mut vectors).expect("it is proved");
    for (rank, chunk) in (0..world).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk))) {
        if collective.output(rank).contains(chunk) {
            let count = counts.of(rank, output(chunk), chunks);
            let parts = collective
                .result(world, rank, chunk)
                .into_iter()
                .map(|symbol| numbers(symbol, count));
            let sum =
                parts.reduce(|a, b| a.iter().zip(b).map(|(a, b)| a.wrapping_add(b)).collect());
            assert_eq!(
                Some(vectors.read(rank, output(chunk))),
                sum,
                "{algorithm} {collective:?}, world {world}"
            );
        }
    }
}

/// The algorithms that implement `collective`.
fn supporting(collective: Collective) -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(move |algorithm| algorithm.supports(collective))
}

fn layout(counts: &[usize]) -> Counts {
    Counts::Alike(Layout::given(counts))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every algorithm of a blocked collective; all-to-all has a test of its own.
    #[test]
    fn blocks_may_have_any_lengths(
        counts in prop::collection::vec(prop_oneof![Just(0), 0..6usize], 1..20),
        root: prop::sample::Index,
    ) {
        let world = counts.len();
        for collective in Collective::all(root.index(world)) {
            if !collective.is_blocked() || collective.transposes() {
                continue;
            }
            for algorithm in supporting(collective) {
                check(algorithm, collective, world, &layout(&counts), Placement::Apart);
                if algorithm.works_in_place(collective) {
                    check(algorithm, collective, world, &layout(&counts), Placement::InPlace);
                }
            }
        }
    }

    /// Every sender has a length of its own for every receiver. Bruck's algorithm is left out,
    /// because its blocks share chunks of scratch and must be equally long.
    #[test]
    fn all_to_all_may_have_any_lengths_between_any_two(
        counts in (1..12usize).prop_flat_map(|world| {
            let row = prop::collection::vec(prop_oneof![Just(0), 0..6usize], world);
            prop::collection::vec(row, world)
        }),
    ) {
        let world = counts.len();
        let counts = Counts::Between(counts);
        for algorithm in [Algorithm::Pairwise, Algorithm::Direct] {
            check(algorithm, Collective::AllToAll, world, &counts, Placement::Apart);
        }
    }

    /// If a collective has no blocks, the algorithm cuts the vector into chunks. Some chunks may be
    /// longer than others, and some may be empty.
    #[test]
    fn vectors_may_have_fewer_elements_than_chunks(
        world in 1..20usize,
        count in 0..40usize,
        root: prop::sample::Index,
    ) {
        for collective in Collective::all(root.index(world)) {
            if collective.is_blocked() || collective == Collective::Barrier {
                continue;
            }
            for algorithm in supporting(collective) {
                let schedule = algorithm.schedule(collective, world, 0).expect("it is supported");
                let counts = Counts::Alike(Layout::even(count, schedule.chunks));
                check(algorithm, collective, world, &counts, Placement::Apart);
            }
        }
    }
}
