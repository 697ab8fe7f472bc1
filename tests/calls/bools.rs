//! `bool`, `usize` and `isize`, where they are not numbers like the others. `collectives` and
//! `random_cases` make every call with bools.

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
                (0..LEN).map(|at| (0..world).any(|rank| bit(rank, at))).collect();
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
