//! Averages of numbers whose sum no element type can hold. `random_cases` compares the averages of
//! every call and type with the stated rule; here calls that are no case of theirs are compared with a plain loop in
//! `f64`.

use crate::arithmetic::Float;
use crate::common::world::TIMEOUT;
use crate::own_schedules::run_star;
use maypole::{Communicator, Local, ReduceOp, bf16, f16};

/// Element `at` of the contribution of `rank`: near the greatest number of the type, of either sign;
/// ordinary numbers; zeros and the least numbers.
fn contribution<T: Float>(rank: usize, at: usize) -> T {
    let share = (0.5 + (rank * 7 + at) as f64 % 5.0 / 11.0) * T::most();
    T::of(match at % 4 {
        0 => share,
        1 => -share,
        2 => (rank * 31 + at) as f64 / 7.0 - 3.0,
        _ => 1e-9 * share * rank as f64,
    })
}

fn contributions<T: Float>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|at| contribution(rank, at)).collect()
}

/// Compares `got`, the elements from `start` on of an average of all ranks, with the witness.
#[track_caller]
fn check<T: Float>(got: &[T], start: usize, world: usize, what: &str) {
    for (at, got) in got.iter().enumerate().map(|(at, got)| (start + at, *got)) {
        let all: Vec<T> = (0..world).map(|rank| contribution(rank, at)).collect();
        let mean = all.iter().map(|it| it.value() / world as f64).sum::<f64>();
        let size = all.iter().map(|it| it.value().abs() / world as f64).sum::<f64>();
        let close = 2.0 * world as f64 * T::epsilon() * size.max(f64::from(f32::MIN_POSITIVE));
        let is_close = got.value().is_finite() && (got.value() - mean).abs() <= close;
        assert!(is_close, "{what} of {world}, element {at}: {got:?} is the average of {all:?}");
    }
}

fn own_schedules<T: Float>(comm: &mut Communicator) {
    let (rank, world) = (comm.rank(), comm.world());
    let mut data = contributions::<T>(rank, 37);
    run_star(comm, &mut data[..], ReduceOp::Avg).unwrap();
    check(&data, 0, world, "a schedule of the user's");
}

#[test]
fn the_average_of_finite_numbers_is_finite_and_close() {
    for hosts in [&[0][..], &[0; 2], &[0; 3], &[0; 7], &[0, 1, 1], &[0, 1]] {
        Local::new(hosts.len()).hosts(hosts).timeout(TIMEOUT).run(|mut comm| {
            own_schedules::<f16>(&mut comm);
            own_schedules::<bf16>(&mut comm);
            own_schedules::<f32>(&mut comm);
            own_schedules::<f64>(&mut comm);
        });
    }
}

/// Long vectors, and registered ones, which ranks reach in place.
#[test]
fn long_and_registered_averages_are_finite() {
    Local::new(2).timeout(TIMEOUT).run(|mut comm| {
        let rank = comm.rank();
        let count = 1 << 18;
        for _ in 0..3 {
            let mut data = contributions::<f32>(rank, count);
            comm.all_reduce(&mut data, ReduceOp::Avg).unwrap();
            check(&data[count - 50..], count - 50, 2, "a long vector");
        }
        let arena = comm.arena(count * 4).unwrap();
        let mut data = arena.alloc::<f32>(count / 2);
        data.copy_from_slice(&contributions::<f32>(rank, count / 2));
        comm.all_reduce(&mut data, ReduceOp::Avg).unwrap();
        check(&data[..50], 0, 2, "a registered vector");
        data.copy_from_slice(&contributions::<f32>(rank, count / 2));
        let mut block = vec![0f32; count / 4];
        comm.reduce_scatter((&data, &mut block), ReduceOp::Avg).unwrap();
        check(&block[..50], rank * count / 4, 2, "a registered block");
    });
}
