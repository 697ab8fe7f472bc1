//! Every operation, over boards and streams, in one window and in many, against the plain loop.

use super::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::{
    CallBuffers, Communicator, DataType, Element, Error, Factor, Local, Operation, ReduceOp,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Counts of elements: none, one, an odd number, and enough for several windows.
const COUNTS: [usize; 4] = [0, 1, 37, 9001];

/// Every world up to five, as one host, as a host a rank, and mixed.
fn worlds() -> impl Iterator<Item = Vec<usize>> {
    let worlds = (1..=5).flat_map(|world| {
        [vec![0; world], (0..world).collect(), (0..world).map(|rank| rank / 2).collect()]
    });
    skip::every_nth(2, worlds).into_iter()
}

fn run<T: Send>(hosts: &[usize], rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    Local::new(hosts.len())
        .hosts(hosts)
        .stream_capacity(1000)
        .timeout(Duration::from_secs(60))
        .run(rank)
}

/// An operation on two elements.
type Meaning = fn(u64, u64) -> u64;

fn number(rank: usize, at: usize) -> u64 {
    (((rank + 1) * 1_000_003 + at) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn numbers(rank: usize, count: usize) -> Vec<u64> {
    (0..count).map(|at| number(rank, at)).collect()
}

/// The result of combining the contributions of the ranks, one after the other.
fn expected(world: usize, count: usize, op: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    (0..count)
        .map(|at| (1..world).fold(number(0, at), |left, rank| op(left, number(rank, at))))
        .collect()
}

/// Composes two maps x -> a x + b, each packed as (a, b): associative, but not commutative.
fn compose(left: u64, right: u64) -> u64 {
    let a = (left >> 32) as u32;
    let b = left as u32;
    let c = (right >> 32) as u32;
    let d = right as u32;
    u64::from(a.wrapping_mul(c)) << 32 | u64::from(c.wrapping_mul(b).wrapping_add(d))
}

fn operation(name: &'static str, commutative: bool, op: Meaning) -> Operation<u64> {
    Operation::new(name, commutative, move |left: &[u64], right: &mut [u64]| {
        left.iter().zip(right).for_each(|(left, right)| *right = op(*left, *right));
    })
}

#[test]
fn operations_that_a_type_lacks_are_refused_and_harm_nothing() {
    fn refused<T: Element + Default>(comm: &mut Communicator, op: ReduceOp, why: &str) {
        assert!(!op.supports(T::DATA_TYPE) || matches!(op, ReduceOp::PreMulSum(_)));
        let error = comm.all_reduce(&mut [T::default()], op).unwrap_err();
        assert!(error.is_harmless());
        assert_eq!(error.to_string(), format!("rank {}: all_reduce: {why}", comm.rank()));
    }
    Communicator::run_local(2, |mut comm| {
        for op in [ReduceOp::Or, ReduceOp::And, ReduceOp::Xor] {
            let why = format!("'{op}' works on the bits of integers, not on f32");
            refused::<f32>(&mut comm, op, &why);
        }
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Avg] {
            let why = format!("bool has no {op}: use 'and', 'or' or 'xor', or sum integers");
            refused::<bool>(&mut comm, op, &why);
        }
        let half = ReduceOp::PreMulSum(Factor::new(0.5));
        refused::<i32>(&mut comm, half, "i32 cannot hold the factor 0.5");
        let mut count = [usize::MAX, comm.rank()];
        comm.all_reduce(&mut count, ReduceOp::Sum).unwrap();
        assert_eq!(count, [usize::MAX - 1, 1]);
    });
    assert_eq!((usize::DATA_TYPE, isize::DATA_TYPE), (DataType::U64, DataType::I64));
}

#[test]
fn names_are_read_back() {
    for &op in ReduceOp::ALL {
        assert_eq!(op.name().parse(), Ok(op));
    }
    assert!("nand".parse::<ReduceOp>().unwrap_err().to_string().ends_with("avg, and, or, xor"));
}

#[test]
fn halves_are_scaled_with_one_rounding() {
    Communicator::run_local(1, |mut comm| {
        let mut data = [maypole::f16::from_f32(3.0)];
        comm.all_reduce(&mut data, ReduceOp::PreMulSum(Factor::new(1.0 / 3.0))).unwrap();
        let third = maypole::f16::from_f64(1.0 / 3.0).to_f32();
        assert_eq!(data, [maypole::f16::from_f32(3.0 * third)]);
    });
}

#[test]
fn own_operations_keep_the_order_of_the_ranks() {
    let ops = [("compose", false, compose as Meaning), ("product", true, u64::wrapping_mul)];
    for hosts in worlds() {
        for (name, commutative, meaning) in ops {
            let op = operation(name, commutative, meaning);
            run(&hosts, |mut comm| {
                for count in COUNTS {
                    check_operation(&mut comm, &op, count, meaning);
                }
            });
        }
    }
}

/// Every collective that reduces, in place and apart, at every root, and with blocks of other lengths.
fn check_operation(comm: &mut Communicator, op: &Operation<u64>, count: usize, meaning: Meaning) {
    let (rank, world) = (comm.rank(), comm.world());
    let roots = (0..world).map(|root| Collective::Reduce { root });
    let others = Collective::all(0).into_iter().filter(|it| it.reduces() && it.root().is_none());
    for collective in roots.chain(others) {
        let whole = if collective.is_blocked() { count * world } else { count };
        let held = match collective.output(rank) {
            HeldChunks::Nothing => 0..0,
            HeldChunks::One(chunk) => chunk * count..(chunk + 1) * count,
            HeldChunks::All => 0..whole,
        };
        let result = match collective {
            // The output of rank 0 stays as it was.
            Collective::ExclusiveScan if rank == 0 => None,
            Collective::ExclusiveScan => Some(expected(rank, whole, meaning)),
            Collective::Scan => Some(expected(rank + 1, whole, meaning)),
            _ => Some(expected(world, whole, meaning)),
        };
        let input = numbers(rank, whole);
        let mut output = vec![7; held.len()];
        let mut place = input.clone();
        let [mut all, mut after] = [output.clone(), input.clone()];
        if let Some(result) = result {
            all.copy_from_slice(&result[held.clone()]);
            after[held.clone()].copy_from_slice(&result[held]);
        }
        comm.call(collective, (&input, &mut output), op).unwrap();
        comm.call(collective, &mut place, op).unwrap();
        assert!(output == all && place == after, "{collective:?} of {count}");
    }
    let counts: Vec<usize> = (0..world).map(|rank| count + 2 * rank).collect();
    let start: usize = counts[..rank].iter().sum();
    let whole = numbers(rank, counts.iter().sum());
    let mut block = vec![0; counts[rank]];
    comm.reduce_scatter((&whole, &counts, &mut block), op).unwrap();
    assert_eq!(block, expected(world, whole.len(), meaning)[start..][..counts[rank]]);
    let input = numbers(rank, count);
    let request = comm.start_all_reduce((input.clone(), vec![0; count]), op);
    assert_eq!(request.wait().unwrap(), (input, expected(world, count, meaning)));
}

/// Every algorithm, between hosts and on one, cuts vectors between records, whatever their size.
#[test]
fn records_are_never_cut() {
    let least = Operation::new("least", true, |left: &[[u32; 3]], right: &mut [[u32; 3]]| {
        left.iter().zip(right).for_each(|(left, right)| *right = (*left).min(*right));
    });
    let record = |rank, at| [number(rank, at) as u32 % 5, rank as u32, at as u32];
    for hosts in [vec![0; 3], vec![0, 1, 2], vec![0, 0, 1, 1, 1]] {
        run(&hosts, |mut comm| {
            let (rank, world) = (comm.rank(), comm.world());
            for (algorithm, count) in Algorithm::named().flat_map(|it| [(it, 37), (it, 30_011)]) {
                comm.set_algorithm(Some(algorithm));
                let mut data: Vec<_> = (0..count).map(|at| record(rank, at)).collect();
                match comm.all_reduce(CallBuffers::records(&mut data), &least) {
                    Err(error) if error.is_harmless() => continue,
                    done => done.unwrap(),
                }
                let least_at = |at| (0..world).map(|rank| record(rank, at)).min().unwrap();
                assert!((0..count).all(|at| data[at] == least_at(at)), "{algorithm}, {count}");
            }
            comm.set_algorithm(None);
            let mut all = vec![[9u8; 1024]; world];
            all[rank] = [rank as u8; 1024];
            comm.all_gather(CallBuffers::records(&mut all)).unwrap();
            assert!((0..world).all(|from| all[from] == [from as u8; 1024]));
            let error = comm.all_reduce(CallBuffers::records(&mut all), ReduceOp::Sum).unwrap_err();
            assert!(error.to_string().ends_with("have no 'sum': pass an `Operation`"), "{error}");
        });
    }
}

#[test]
fn an_algorithm_that_breaks_the_order_is_refused() {
    Communicator::run_local(3, |mut comm| {
        comm.set_algorithm(Some(Algorithm::Ring));
        let error = comm.all_reduce(&mut [1], &operation("compose", false, compose)).unwrap_err();
        assert!(error.is_harmless());
        let why = "algorithm 'ring' does not combine the ranks in their order, as 'compose' in \
                   rank order needs; leave the choice to 'auto'";
        assert_eq!(error.to_string(), format!("rank {}: all_reduce: {why}", comm.rank()));
        comm.all_reduce(&mut [1], &operation("product", true, u64::wrapping_mul)).unwrap();
    });
}

#[test]
fn a_panic_in_an_operation_fails_all_ranks_and_goes_on_at_the_call() {
    for hosts in [vec![0; 3], vec![0, 1, 2]] {
        let ends = run(&hosts, |mut comm| {
            let rank = comm.rank();
            let broken = Operation::new("broken", true, move |_: &[u64], _: &mut [u64]| {
                assert!(rank != 1, "no such sum");
            });
            let call = catch_unwind(AssertUnwindSafe(|| -> maypole::Result<()> {
                loop {
                    comm.all_reduce(&mut [1, 2, 3], &broken)?;
                }
            }));
            let later = comm.barrier().unwrap_err();
            assert!(matches!(later, Error::Failed { .. }), "{later}");
            call.map_err(|panic| *panic.downcast::<&str>().unwrap())
        });
        assert_eq!(ends[1].as_ref().unwrap_err(), &"no such sum");
        for rank in [0, 2] {
            let Ok(Err(error)) = &ends[rank] else { panic!("{ends:?}") };
            let why = "rank 1 panicked in all_reduce(3 x u64, 'broken')";
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

/// A fold takes 16 sources. Of 17 ranks and more, a second fold continues with the result of the
/// first on its left, by every algorithm that combines so many ranks in one fold.
#[test]
fn more_ranks_than_a_fold_has_sources_are_combined_in_order() {
    let boards = [17, 18, 33].map(|world| vec![0; world]);
    let streams = (0..17).collect();
    for hosts in boards.into_iter().chain([streams]) {
        let world = hosts.len();
        let kept = run(&hosts, |mut comm| {
            let op = operation("compose", false, compose);
            let mine = numbers(comm.rank(), 40);
            let mut kept = Vec::new();
            for algorithm in Algorithm::named() {
                comm.set_algorithm(Some(algorithm));
                let mut all = vec![0; 40];
                match comm.all_reduce((&mine, &mut all), &op) {
                    Ok(()) => assert_eq!(all, expected(world, 40, compose), "{algorithm}"),
                    Err(error) if error.is_harmless() => continue,
                    Err(error) => panic!("{algorithm}: {error}"),
                }
                kept.push(algorithm);
            }
            for root in [0, world - 1] {
                comm.set_algorithm(Some(Algorithm::Linear));
                let mut data = mine.clone();
                comm.reduce(&mut data, &op, root).unwrap();
                let root_has =
                    if comm.rank() == root { expected(world, 40, compose) } else { mine.clone() };
                assert_eq!(data, root_has, "to {root}");
            }
            kept
        });
        let shots = [Algorithm::OneShot, Algorithm::TwoShot];
        assert!(kept.iter().all(|kept| shots.iter().all(|shot| kept.contains(shot))), "{kept:?}");
    }
}
