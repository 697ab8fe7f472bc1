//! Blocks of any lengths, also of length zero. Schedules name chunks and not counts, so the same
//! schedules are right for all of them.

use crate::common::walked::walked;
use crate::common::world::TIMEOUT;
use crate::common::{SeededRng, works_in_place};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::{Buffer, Layout, Placement, Span, input, output};
use maypole::{Communicator, Error, Local};
use proptest::prelude::*;

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
    let places = || (0..world).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk)));
    let own = places().filter(|(rank, chunk)| collective.input(*rank).contains(*chunk));
    let own = own.map(|(rank, chunk)| {
        let count = counts.of(rank, input(chunk), chunks);
        ((rank, input(chunk)), numbers(Symbol { rank, chunk }, count))
    });
    let ends = walked(&schedules, placement, own, |a, b| sum(a, &b)).expect("it is proved");
    for ((rank, span), value) in &ends {
        if span.buffer != Buffer::Scratch {
            assert_eq!(value.len(), counts.of(*rank, *span, chunks), "rank {rank}, {span}");
        }
    }
    for (rank, chunk) in places() {
        if collective.output(rank).contains(chunk) {
            let count = counts.of(rank, output(chunk), chunks);
            let symbols = collective.result(world, rank, chunk).into_iter();
            let parts = symbols.map(|symbol| numbers(symbol, count));
            assert_eq!(
                ends.get(&(rank, output(chunk))),
                parts.reduce(|a, b| sum(&a, &b)).as_ref(),
                "{algorithm} {collective:?}, world {world}"
            );
        }
    }
}

fn sum(a: &[u64], b: &[u64]) -> Vec<u64> {
    assert_eq!(a.len(), b.len(), "chunks of other lengths are combined");
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

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
                if works_in_place(algorithm, collective) {
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

#[test]
fn lengths_that_contradict_one_another_are_refused_everywhere_and_harmless() {
    let check = |mut comm: Communicator| {
        let mine = vec![1u32; comm.rank() + usize::from(comm.rank() == 1)];
        let counts: Vec<usize> = (0..comm.world()).collect();
        let mut all = vec![0; counts.iter().sum()];
        let error = comm.gather((&mine, &mut all, &counts), 0).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid { why, .. } if why.contains("rank 1 has 2 elements")),
            "{error}"
        );
        comm.barrier().unwrap();
        let (sends, receives) =
            (vec![1; comm.world()], vec![usize::from(comm.rank() != 0); comm.world()]);
        let mut output = vec![0u32; receives.iter().sum()];
        let error =
            comm.all_to_all((&vec![7; comm.world()], &sends, &mut output, &receives)).unwrap_err();
        assert!(error.to_string().contains("which expects 0"), "{error}");
        comm.barrier().unwrap();
    };
    for world in 2..=5 {
        let apart: Vec<usize> = (0..world).collect();
        let halves: Vec<usize> = (0..world).map(|rank| rank / 2).collect();
        for hosts in [vec![0; world], apart, halves] {
            Local::new(world).hosts(&hosts).timeout(TIMEOUT).run(check);
        }
    }
}
