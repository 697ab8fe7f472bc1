//! `bool`, `usize` and `isize` go through every typed call.

use maypole::schedule::collective::Collective;
use maypole::{Communicator, DataType, Element, Error, Local, ReduceOp, algorithms::Algorithm};

/// Worlds whose ranks share boards, and worlds whose ranks are joined by streams.
fn worlds() -> impl Iterator<Item = Local> {
    [1, 2, 3, 5].into_iter().flat_map(|world| {
        let apart: Vec<usize> = (0..world).collect();
        [Local::new(world), Local::new(world).hosts(&apart)]
    })
}

/// Element `at` of the input of rank `rank`.
fn bit(rank: usize, at: usize) -> bool {
    (rank * 7 + at * 5 + at / 3) % 4 > 1
}

fn bits(rank: usize, len: usize) -> Vec<bool> {
    (0..len).map(|at| bit(rank, at)).collect()
}

const LEN: usize = 300;
const LOGICAL: [ReduceOp; 5] =
    [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor, ReduceOp::Min, ReduceOp::Max];

fn combine(op: ReduceOp, left: bool, right: bool) -> bool {
    match op {
        ReduceOp::And | ReduceOp::Min => left && right,
        ReduceOp::Or | ReduceOp::Max => left || right,
        ReduceOp::Xor => left != right,
        _ => panic!("{op} is no logical operation"),
    }
}

/// The combination of element `at` of ranks `0..world`.
fn combined(op: ReduceOp, world: usize, at: usize) -> bool {
    (0..world).map(|rank| bit(rank, at)).reduce(|left, right| combine(op, left, right)).unwrap()
}

#[test]
fn reductions_of_bools_are_logical() {
    for world in worlds() {
        world.run(|mut comm| {
            let rank = comm.rank();
            let world = comm.world();
            for op in LOGICAL {
                let expected: Vec<bool> = (0..LEN).map(|at| combined(op, world, at)).collect();
                let mine = bits(rank, LEN);
                let mut data = mine.clone();
                comm.all_reduce(&mut data, op).unwrap();
                assert_eq!(data, expected, "{op}");
                let mut output = vec![false; LEN];
                comm.all_reduce_into(&mine, &mut output, op).unwrap();
                assert_eq!(output, expected, "{op}");
                let mut data = mine.clone();
                comm.reduce(&mut data, op, world - 1).unwrap();
                assert_eq!(data, if rank == world - 1 { expected } else { mine }, "{op}");
                let mut data = bits(rank, LEN);
                comm.scan(&mut data, op).unwrap();
                let expected: Vec<bool> = (0..LEN).map(|at| combined(op, rank + 1, at)).collect();
                assert_eq!(data, expected, "scan, {op}");
            }
        });
    }
}

#[test]
fn scattered_reductions_of_bools() {
    for world in worlds() {
        world.run(|mut comm| {
            let rank = comm.rank();
            let world = comm.world();
            let expected: Vec<bool> =
                (0..LEN).map(|at| combined(ReduceOp::Or, world, rank * LEN + at)).collect();
            let whole = bits(rank, LEN * world);
            let mut block = vec![false; LEN];
            comm.reduce_scatter(&whole, &mut block, ReduceOp::Or).unwrap();
            assert_eq!(block, expected);
            let mut data = whole.clone();
            comm.reduce_scatter_in_place(&mut data, ReduceOp::Or).unwrap();
            assert_eq!(data[rank * LEN..][..LEN], expected);
            let counts = vec![LEN; world];
            let mut block = vec![false; LEN];
            comm.reduce_scatter_v(&whole, &mut block, &counts, ReduceOp::Or).unwrap();
            assert_eq!(block, expected);
            let mut prefix = bits(rank, LEN);
            comm.exclusive_scan(&mut prefix, ReduceOp::Xor).unwrap();
            if rank > 0 {
                let expected: Vec<bool> =
                    (0..LEN).map(|at| combined(ReduceOp::Xor, rank, at)).collect();
                assert_eq!(prefix, expected);
            }
        });
    }
}

#[test]
fn bools_are_moved_as_they_are() {
    for world in worlds() {
        world.run(|mut comm| {
            let rank = comm.rank();
            let world = comm.world();
            let root = world - 1;
            let all: Vec<bool> = (0..world).flat_map(|from| bits(from, LEN)).collect();
            let mut data = bits(rank, LEN);
            comm.broadcast(&mut data, root).unwrap();
            assert_eq!(data, bits(root, LEN));
            let mut whole = vec![false; LEN * world];
            comm.all_gather(&bits(rank, LEN), &mut whole).unwrap();
            assert_eq!(whole, all);
            let mut whole = vec![false; LEN * world];
            comm.gather(&bits(rank, LEN), &mut whole, root).unwrap();
            assert_eq!(whole, if rank == root { all.clone() } else { vec![false; LEN * world] });
            let mut block = vec![false; LEN];
            comm.scatter(&all, &mut block, root).unwrap();
            assert_eq!(block, bits(rank, LEN));
            let mut crossed = vec![false; LEN * world];
            comm.all_to_all(&all, &mut crossed).unwrap();
            assert_eq!(crossed, bits(rank, LEN).repeat(world));
            let counts: Vec<usize> = (0..world).map(|rank| rank * 3).collect();
            let mut uneven = vec![false; counts.iter().sum()];
            comm.all_gather_v(&bits(rank, rank * 3), &mut uneven, &counts).unwrap();
            let expected: Vec<bool> = (0..world).flat_map(|from| bits(from, from * 3)).collect();
            assert_eq!(uneven, expected);
        });
    }
}

#[test]
fn bools_in_messages_requests_and_own_schedules() {
    for world in worlds() {
        world.run(|mut comm| {
            let rank = comm.rank();
            let world = comm.world();
            let right = (rank + 1) % world;
            let left = (rank + world - 1) % world;
            let mut came = vec![false; LEN];
            comm.exchange(&bits(rank, LEN), right, &mut came, left, 1).unwrap();
            assert_eq!(came, bits(left, LEN));
            let request = comm.start_all_reduce(bits(rank, LEN), ReduceOp::Or);
            let expected: Vec<bool> =
                (0..LEN).map(|at| combined(ReduceOp::Or, world, at)).collect();
            assert_eq!(request.wait().unwrap(), expected);
            let mut data = bits(rank, LEN);
            let tree = |rank| {
                Algorithm::Tree.schedules(Collective::AllReduce, world).unwrap().swap_remove(rank)
            };
            comm.run(tree, Collective::AllReduce, &mut data, ReduceOp::Or).unwrap();
            assert_eq!(data, expected);
        });
    }
}

#[test]
fn bools_have_no_sum() {
    Communicator::run_local(2, |mut comm| {
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Avg] {
            let error = comm.all_reduce(&mut [true], op).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains("bool has no ") && said.contains("'or'"), "{said}");
            assert!(!op.supports(DataType::Bool));
        }
        let mut count = [u64::from(comm.rank() == 1)];
        comm.all_reduce(&mut count, ReduceOp::Sum).unwrap();
        assert_eq!(count, [1], "the communicator works as before");
    });
}

#[test]
fn bool_and_byte_do_not_match() {
    let errors = Communicator::run_local(2, |mut comm| match comm.rank() {
        0 => comm.all_reduce(&mut [true], ReduceOp::Or).unwrap_err().to_string(),
        _ => comm.all_reduce(&mut [1u8], ReduceOp::Or).unwrap_err().to_string(),
    });
    assert!(errors.iter().any(|error| error.contains("1 x bool, or")), "{errors:?}");
}

#[test]
fn machine_words_are_64_bits() {
    assert_eq!(usize::DATA_TYPE, DataType::U64);
    assert_eq!(isize::DATA_TYPE, DataType::I64);
    for world in worlds() {
        world.run(|mut comm| {
            let world = comm.world();
            let mut sum = [comm.rank(), usize::MAX];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [world * (world - 1) / 2, usize::MAX.wrapping_mul(world)]);
            let mut least = [-(comm.rank() as isize)];
            comm.all_reduce(&mut least, ReduceOp::Min).unwrap();
            assert_eq!(least, [1 - world as isize]);
        });
    }
}
