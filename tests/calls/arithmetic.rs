//! The arithmetic contract of `maypole::comm::element`, type by type. Every call of `collectives`
//! and `random_cases` is compared with `Number`, bit by bit, by every algorithm and over every
//! link. Here `Number` is compared with the contract.
//!
//! Expected results are computed by wider types and by sorting.

use crate::case::Number;
use crate::common::SeededRng;
use crate::common::world::TIMEOUT;
use maypole::{Factor, Local, ReduceOp};
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

/// The smallest and the largest of any values, by sorting them.
fn extremes<T: Float>(rng: &mut SeededRng) {
    let mut values: Vec<T> = (0..1 + rng.below(5)).map(|_| T::any(rng.next_u64())).collect();
    let nan = values.iter().find(|value| value.value().is_nan()).copied();
    let all = values.clone();
    values.sort_by(|a, b| a.value().total_cmp(&b.value()));
    check(&all, ReduceOp::Min, nan.unwrap_or(values[0]));
    check(&all, ReduceOp::Max, nan.unwrap_or(values[values.len() - 1]));
}

/// Every step rounds to the element type, once: the exact result fits an `f64`, or the type is
/// that. A product is rounded before it is added.
fn every_step_rounds<T: Float>(rng: &mut SeededRng) {
    let [a, b] = [(); 2].map(|()| T::any(rng.next_u64()));
    let same = |found: T, exact: f64, what: &str| {
        let expected = T::of(exact);
        assert_eq!(found.bits(), expected.bits(), "{what} of {a:?} and {b:?}: {found:?}");
    };
    same(a.combine(b, ReduceOp::Sum), a.value() + b.value(), "sum");
    same(a.combine(b, ReduceOp::Product), a.value() * b.value(), "product");
    let factor = T::of(1.0 + rng.below(4096) as f64 / 4096.0).value();
    let scaled = a.prepared(ReduceOp::PreMulSum(Factor::new(factor)), 1);
    same(scaled, a.value() * factor, "scaled input");
    let by = 1 + rng.below(9);
    same(a.prepared(ReduceOp::Avg, by), a.value() / by as f64, "part of an average");
}

fn floats<T: Float>() {
    nan_wins::<T>();
    (2..=5).for_each(corners::<T>);
    let mut rng = SeededRng::new(7);
    for _ in 0..20_000 {
        extremes::<T>(&mut rng);
        every_step_rounds::<T>(&mut rng);
    }
}

/// An integer type, of which tests need the limits and the lowest bits of longer numbers.
trait Integer: Number + PartialEq {
    /// The lowest bits of `bits`, as many as the type has.
    fn of(bits: u128) -> Self;
    fn value(self) -> i128;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Integer for $integer {
            fn of(bits: u128) -> Self {
                bits as Self
            }

            fn value(self) -> i128 {
                self.into()
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// The reduction of `values` by `op`, computed in integers that are long enough.
fn whole<T: Integer>(values: &[T], op: ReduceOp) -> T {
    let long = || values.iter().map(|value| value.value() as u128);
    let sum = || T::of(long().fold(0, u128::wrapping_add));
    match op {
        ReduceOp::Sum => sum(),
        ReduceOp::Product => T::of(long().fold(1, u128::wrapping_mul)),
        ReduceOp::Min => T::of(values.iter().map(|value| value.value()).min().unwrap() as u128),
        ReduceOp::Max => T::of(values.iter().map(|value| value.value()).max().unwrap() as u128),
        // The sum wraps, the division is towards zero.
        ReduceOp::Avg => T::of((sum().value() / values.len() as i128) as u128),
        ReduceOp::And => T::of(long().fold(u128::MAX, |a, b| a & b)),
        ReduceOp::Or => T::of(long().fold(0, |a, b| a | b)),
        _ => T::of(long().fold(0, |a, b| a ^ b)),
    }
}

fn integers<T: Integer>() {
    let mut rng = SeededRng::new(5);
    for _ in 0..5_000 {
        let values: Vec<T> = (0..1 + rng.below(5)).map(|_| T::any(rng.next_u64())).collect();
        for &op in ReduceOp::ALL {
            assert_eq!(combined(&values, op), [whole(&values, op); 2], "the {op} of {values:?}");
        }
        let factor = ReduceOp::PreMulSum(Factor::new(3.0));
        assert_eq!(values[0].prepared(factor, 1), T::of((3 * values[0].value()) as u128));
    }
}

#[test]
fn every_type_keeps_the_contract() {
    floats::<f16>();
    floats::<bf16>();
    floats::<f32>();
    floats::<f64>();
    integers::<i8>();
    integers::<i16>();
    integers::<i32>();
    integers::<i64>();
    integers::<u8>();
    integers::<u16>();
    integers::<u32>();
    integers::<u64>();
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
