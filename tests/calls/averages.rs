//! Averages of numbers whose sum no element type can hold. The witness is a plain loop in `f64`, of integers
//! one in `i128`; the bits of floats are those of the loop over the ranks that divides each contribution
//! before it is added.

use crate::arithmetic::{Float, combined};
use crate::common::world::TIMEOUT;
use crate::own_schedules::star;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Element, Local, ReduceOp, Transport, bf16, f16};

/// A type of numbers to average.
trait Averaged: Element + bytemuck::Pod + std::fmt::Debug + PartialEq {
    /// Rounded to nearest.
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
    fn most() -> f64;
    /// The distance from 1 to the next value above.
    fn epsilon() -> f64;
    /// The stated rule: of floats, each contribution divided, then summed from left to right; of integers, the
    /// whole sum divided.
    fn by_rule(contributions: &[Self]) -> Self;
}

impl<T: Float + bytemuck::Pod + PartialEq> Averaged for T {
    fn of(value: f64) -> Self {
        <T as Float>::of(value)
    }

    fn value(self) -> f64 {
        <T as Float>::value(self)
    }

    fn most() -> f64 {
        <T as Float>::most()
    }

    fn epsilon() -> f64 {
        <T as Float>::epsilon()
    }

    fn by_rule(contributions: &[Self]) -> Self {
        combined(contributions, ReduceOp::Avg)[0]
    }
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Averaged for $integer {
            fn of(value: f64) -> Self {
                value as Self
            }

            fn value(self) -> f64 {
                self as f64
            }

            fn most() -> f64 {
                Self::MAX as f64
            }

            /// The rule alone counts.
            fn epsilon() -> f64 {
                f64::MAX.sqrt()
            }

            fn by_rule(contributions: &[Self]) -> Self {
                let sum: i128 = contributions.iter().map(|it| i128::from(*it)).sum();
                Self::try_from(sum / contributions.len() as i128).unwrap()
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Elements of one rank's block.
const COUNT: usize = 37;

/// Element `at` of the contribution of `rank`: near the greatest number of the type, of either sign;
/// ordinary numbers; zeros and the least numbers.
fn contribution<T: Averaged>(rank: usize, at: usize) -> T {
    let share = (0.5 + (rank * 7 + at) as f64 % 5.0 / 11.0) * T::most();
    T::of(match at % 4 {
        0 => share,
        1 => -share,
        2 => (rank * 31 + at) as f64 / 7.0 - 3.0,
        _ => {
            if rank == 0 {
                0.0
            } else {
                1e-9 * share
            }
        }
    })
}

fn contributions<T: Averaged>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|at| contribution(rank, at)).collect()
}

/// Compares `got`, the elements from `start` on of an average of all ranks, with the witness and, where
/// the order of the ranks is kept, with the rule.
#[track_caller]
fn check<T: Averaged>(got: &[T], start: usize, world: usize, in_order: bool, what: &str) {
    for (at, got) in got.iter().enumerate().map(|(at, got)| (start + at, *got)) {
        let all: Vec<T> = (0..world).map(|rank| contribution(rank, at)).collect();
        let mean = all.iter().map(|it| it.value() / world as f64).sum::<f64>();
        let size = all.iter().map(|it| it.value().abs() / world as f64).sum::<f64>();
        let close = 2.0 * world as f64 * T::epsilon() * size.max(f64::from(f32::MIN_POSITIVE));
        let is_close = got.value().is_finite() && (got.value() - mean).abs() <= close;
        assert!(is_close, "{what} of {world}, element {at}: {got:?} is the average of {all:?}");
        let rule = T::by_rule(&all);
        assert!(!in_order || got == rule, "{what} of {world}, element {at}: {got:?}, not {rule:?}");
    }
}

fn every_call<T: Averaged>(comm: &mut Communicator, in_order: bool) {
    let (rank, world) = (comm.rank(), comm.world());
    let whole = COUNT * world;
    let mine = || contributions::<T>(rank, whole);
    let check = |got: &[T], start: usize, what: &str| check(got, start, world, in_order, what);
    let zeros = |count: usize| vec![T::of(0.0); count];
    let op = ReduceOp::Avg;

    let mut data = mine();
    comm.all_reduce(&mut data, op).unwrap();
    check(&data, 0, "all_reduce in place");
    let (input, mut data) = (mine(), zeros(whole));
    comm.all_reduce((&input, &mut data), op).unwrap();
    check(&data, 0, "all_reduce");
    assert_eq!(input, mine(), "an input changes");

    let (input, mut block) = (mine(), zeros(COUNT));
    comm.reduce_scatter((&input, &mut block), op).unwrap();
    check(&block, rank * COUNT, "reduce_scatter");
    assert_eq!(input, mine(), "an input changes");
    let mut data = mine();
    comm.reduce_scatter(&mut data, op).unwrap();
    let own = rank * COUNT..(rank + 1) * COUNT;
    check(&data[own.clone()], own.start, "reduce_scatter in place");
    assert_eq!((&data[..own.start], &data[own.end..]), (&mine()[..own.start], &mine()[own.end..]));
    let counts: Vec<usize> = (0..world).map(|of| if of == 0 { whole } else { 0 }).collect();
    let (input, mut block) = (mine(), zeros(counts[rank]));
    comm.reduce_scatter((&input, &counts[..], &mut block), op).unwrap();
    check(&block, 0, "reduce_scatter with counts");

    let root = world - 1;
    let (input, mut data) = (mine(), zeros(whole));
    comm.reduce((&input, &mut data), op, root).unwrap();
    let mut same = mine();
    comm.reduce(&mut same, op, root).unwrap();
    match rank == root {
        true => [data, same].iter().for_each(|it| check(it, 0, "reduce")),
        false => assert_eq!((data, same), (zeros(whole), mine()), "a rank that is no root"),
    }

    let request = comm.start_all_reduce(mine(), op);
    check(&request.wait().unwrap(), 0, "a request");
    let mut many = [mine()[..3].to_vec(), Vec::new(), mine()[..5].to_vec()];
    comm.all_reduce_many(&mut many, op).unwrap();
    many.iter().for_each(|it| check(it, 0, "all_reduce_many"));
    for input in [None, Some(mine())] {
        let mut data = mine();
        let collective = Collective::AllReduce;
        let schedule = |rank| star(world, rank);
        match &input {
            None => comm.run(schedule, collective, &mut data, op),
            Some(input) => comm.run(schedule, collective, (input, &mut data), op),
        }
        .unwrap();
        check(&data, 0, "a schedule of the user's");
    }
}

fn every_type(mut comm: Communicator) {
    for deterministic in [false, true] {
        comm.set_deterministic(deterministic);
        every_call::<f16>(&mut comm, deterministic);
        every_call::<bf16>(&mut comm, deterministic);
        every_call::<f32>(&mut comm, deterministic);
        every_call::<f64>(&mut comm, deterministic);
    }
    every_call::<i8>(&mut comm, true);
    every_call::<i16>(&mut comm, true);
    every_call::<i32>(&mut comm, true);
    every_call::<i64>(&mut comm, true);
    every_call::<u8>(&mut comm, true);
    every_call::<u16>(&mut comm, true);
    every_call::<u32>(&mut comm, true);
    every_call::<u64>(&mut comm, true);
}

#[test]
fn the_average_of_finite_numbers_is_finite_and_close() {
    for world in [1, 2, 3, 4, 7] {
        Local::new(world).timeout(TIMEOUT).run(every_type);
    }
    Local::new(3).hosts(&[0, 1, 1]).timeout(TIMEOUT).run(every_type);
    Local::new(2).timeout(TIMEOUT).run(|mut comm| every_type(comm.over(Transport::Tcp).unwrap()));
}

/// Long vectors, and registered ones, which ranks reach in place.
#[test]
fn long_and_registered_averages_are_finite() {
    Local::new(2).timeout(TIMEOUT).run(|mut comm| {
        let rank = comm.rank();
        let count = 1 << 20;
        for _ in 0..3 {
            let mut data = contributions::<f32>(rank, count);
            comm.all_reduce(&mut data, ReduceOp::Avg).unwrap();
            check(&data[count - 50..], count - 50, 2, false, "a long vector");
        }
        let arena = comm.arena(count * 4).unwrap();
        let mut data = arena.alloc::<f32>(count / 2);
        data.copy_from_slice(&contributions::<f32>(rank, count / 2));
        comm.all_reduce(&mut data, ReduceOp::Avg).unwrap();
        check(&data[..50], 0, 2, false, "a registered vector");
        data.copy_from_slice(&contributions::<f32>(rank, count / 2));
        let mut block = vec![0f32; count / 4];
        comm.reduce_scatter((&data, &mut block), ReduceOp::Avg).unwrap();
        check(&block[..50], rank * count / 4, 2, false, "a registered block");
    });
}
