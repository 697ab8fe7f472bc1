//! `bool`, `usize` and `isize`, where they are not numbers like the others. `collectives` and
//! `random_cases` make every call with bools.

use maypole::{Communicator, DataType, Element, Error, Local, ReduceOp};

/// Worlds whose ranks share boards, and worlds whose ranks are joined by streams.
fn worlds() -> impl Iterator<Item = Local> {
    [1, 2, 3, 5].into_iter().flat_map(|world| {
        let apart: Vec<usize> = (0..world).collect();
        [Local::new(world), Local::new(world).hosts(&apart)]
    })
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
