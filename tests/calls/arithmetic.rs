//! The arithmetic contract of `maypole::comm::element`, type by type. Every call of `random_cases`
//! is compared with `Number`, bit by bit, by every algorithm and over every link. Here `Number` is compared with the contract.
//!
//! Expected results are computed by wider types and by sorting.

use crate::case::Number;
use crate::common::world::TIMEOUT;
use maypole::{Local, ReduceOp};
use maypole::{bf16, f16};

/// The results of combining `values` one after the other, from the first one and from the last one.
pub(crate) fn combined<T: Number>(values: &[T], op: ReduceOp) -> [T; 2] {
    let world = values.len();
    let prepared = || values.iter().map(|value| value.prepared(op, world));
    let forward = prepared().reduce(|a, b| a.combine(b, op));
    let backward = prepared().rev().reduce(|a, b| a.combine(b, op));
    [forward, backward].map(|sum| sum.expect("there are values").finished(op, world))
}

/// A float as the contract sees it. All its values are values of `f64`, too.
pub(crate) trait Float: Number + PartialEq {
    /// A quiet NaN, a negative quiet NaN with a payload, and a signalling NaN.
    const NANS: [Self; 3];

    /// To nearest, ties to even.
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
    /// The largest finite value.
    fn most() -> f64;
    /// The smallest value above zero, which is subnormal.
    fn least() -> f64;
    /// The distance from 1 to the next value above.
    fn epsilon() -> f64;
}

macro_rules! floats {
    ($($float:ty, $nans:expr, $of:expr);+ $(;)?) => {$(
        impl Float for $float {
            const NANS: [Self; 3] = [
                Self::from_bits($nans[0]),
                Self::from_bits($nans[1]),
                Self::from_bits($nans[2]),
            ];

            fn of(value: f64) -> Self {
                $of(value)
            }

            fn value(self) -> f64 {
                f64::from(self)
            }

            fn most() -> f64 {
                f64::from(Self::MAX)
            }

            fn least() -> f64 {
                f64::from(Self::from_bits(1))
            }

            fn epsilon() -> f64 {
                f64::from(Self::EPSILON)
            }
        }
    )+};
}

floats! {
    f16, [0x7e00, 0xfe01, 0x7c01], f16::from_f64;
    bf16, [0x7fc0, 0xffc1, 0x7f81], bf16::from_f64;
    f32, [0x7fc0_0000, 0xffc0_0001, 0x7f80_0001], |value| value as f32;
    f64, [0x7ff8 << 48, 0xfff8 << 48 | 1, 0x7ff0 << 48 | 1], |value| value;
}

#[track_caller]
fn check<T: Float>(values: &[T], op: ReduceOp, expected: T) {
    for found in combined(values, op) {
        assert_eq!(found.bits(), expected.bits(), "{found:?} is the {op} of {values:?}");
    }
}

fn nan_wins<T: Float>() {
    for (nan, at) in T::NANS.into_iter().flat_map(|nan| [0, 1, 2].map(|at| (nan, at))) {
        let mut values = [T::of(1.5); 3];
        values[at] = nan;
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
            check(&values, op, nan);
        }
    }
}

/// Cases with one result in every order of combination: one rank has `odd`, the others `other`.
fn corners<T: Float>(world: usize) {
    let infinite = f64::INFINITY;
    let most = T::most();
    let least = T::least();
    let table = [
        // A sum does not begin with a zero of its own, which would lose the sign of -0.
        (ReduceOp::Sum, -0.0, -0.0, -0.0),
        (ReduceOp::Sum, 0.0, -0.0, 0.0),
        (ReduceOp::Sum, -infinite, 1.0, -infinite),
        (ReduceOp::Sum, -infinite, infinite, f64::NAN),
        (ReduceOp::Sum, most, most, infinite),
        // Subnormal numbers are not flushed to zero.
        (ReduceOp::Sum, least, least, least * world as f64),
        (ReduceOp::Product, least, -1.0, least * if world.is_multiple_of(2) { -1.0 } else { 1.0 }),
        (ReduceOp::Product, -0.0, 1.0, -0.0),
        (ReduceOp::Product, 0.0, infinite, f64::NAN),
        (ReduceOp::Product, most, 2.0, infinite),
        (ReduceOp::Product, least, 0.25, 0.0),
        (ReduceOp::Min, 0.0, -0.0, -0.0),
        (ReduceOp::Min, -0.0, 0.0, -0.0),
        (ReduceOp::Max, 0.0, -0.0, 0.0),
        (ReduceOp::Max, -0.0, 0.0, 0.0),
        (ReduceOp::Min, infinite, most, most),
        (ReduceOp::Max, -infinite, -most, -most),
        (ReduceOp::Max, -least, 0.0, 0.0),
        (ReduceOp::Min, least, 1.0, least),
        (ReduceOp::Avg, -0.0, -0.0, -0.0),
        (ReduceOp::Avg, infinite, most, infinite),
        (ReduceOp::Avg, -infinite, infinite, f64::NAN),
        // Quotients are rounded, and values below half of the least number become zero.
        (ReduceOp::Avg, least, 0.0, least / world as f64),
        (ReduceOp::Avg, 2.0 * world as f64, world as f64, (world + 1) as f64),
    ];
    for (op, odd, other, expected) in table {
        for at in 0..world {
            let mut values = vec![T::of(other); world];
            values[at] = T::of(odd);
            check(&values, op, T::of(expected));
        }
    }
}

fn floats<T: Float>() {
    nan_wins::<T>();
    (2..=5).for_each(corners::<T>);
}

#[test]
fn every_float_keeps_the_contract() {
    floats::<f16>();
    floats::<bf16>();
    floats::<f32>();
    floats::<f64>();
}

/// An i8 cannot count 128 ranks, and does not hold the sum of their ones.
#[test]
fn an_average_may_be_over_more_ranks_than_the_type_can_count() {
    let averages = Local::new(128).timeout(TIMEOUT).run(|mut comm| {
        let mut signed = [1i8];
        let mut unsigned = [2u8];
        comm.all_reduce(&mut signed, ReduceOp::Avg).unwrap();
        comm.all_reduce(&mut unsigned, ReduceOp::Avg).unwrap();
        (signed, unsigned)
    });
    assert_eq!(averages, [([1], [2]); 128]);
}
