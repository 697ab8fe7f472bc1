//! The arithmetic contract of `maypole::comm::element`, type by type, as users meet it: by every
//! algorithm that reduces, on boards and over streams, in place and apart.
//!
//! Expected results come from wider types and from sorting, not from the binary steps that the
//! kernels take. What does depend on the order of these steps is held by `determinism` and
//! `collectives`.

use crate::common::SeededRng;
use crate::common::world::TIMEOUT;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Element, Factor, Local, ReduceOp};
use maypole::{bf16, f16};
use std::fmt::Debug;

/// Runs `check` on every rank of worlds on one board, over streams, and mixed.
fn everywhere(check: impl Fn(&mut Communicator) + Sync) {
    for hosts in [&[0, 0][..], &[0, 1], &[0; 5], &[0, 1, 2], &[0, 0, 1]] {
        let local = Local::new(hosts.len()).hosts(hosts).stream_capacity(300).timeout(TIMEOUT);
        local.run(|mut comm| check(&mut comm));
    }
}

/// The results of reducing all ranks' `mine` by `op`, by every collective and algorithm that
/// reduces. Some collectives have a result at some ranks only.
fn reductions<T: Element>(
    comm: &mut Communicator,
    mine: &[T],
    op: ReduceOp,
) -> Vec<(String, Vec<T>)> {
    let world = comm.world();
    let root = comm.world() - 1;
    let mut results = Vec::new();
    for algorithm in Algorithm::ALL {
        let all = algorithm.collectives().iter().filter(|it| it.reduces());
        for &collective in all.filter(|it| op != ReduceOp::Avg || !matches!(it, Collective::Scan)) {
            comm.set_algorithm(Some(algorithm));
            let mut place = mine.to_vec();
            let mut out = mine.to_vec();
            let ends = match collective {
                Collective::AllReduce => {
                    comm.all_reduce(&mut place, op).unwrap();
                    comm.all_reduce_into(mine, &mut out, op).unwrap();
                    true
                }
                Collective::Reduce { .. } => {
                    comm.reduce(&mut place, op, root).unwrap();
                    comm.reduce_into(mine, &mut out, op, root).unwrap();
                    comm.rank() == root
                }
                Collective::ReduceScatter => {
                    let mut whole = mine.repeat(world);
                    comm.reduce_scatter(&whole, &mut out, op).unwrap();
                    comm.reduce_scatter_in_place(&mut whole, op).unwrap();
                    place.copy_from_slice(&whole[comm.rank() * mine.len()..][..mine.len()]);
                    true
                }
                Collective::Scan => {
                    comm.scan(&mut place, op).unwrap();
                    comm.scan_into(mine, &mut out, op).unwrap();
                    comm.rank() == root
                }
                // An exclusive scan never has the parts of all ranks.
                _ => false,
            };
            if ends {
                results.push((format!("{op} in place, {collective:?} by {algorithm}"), place));
                results.push((format!("{op}, {collective:?} by {algorithm}"), out));
            }
        }
    }
    results
}

/// A float as the contract sees it. All its values are values of `f64`, too.
trait Float: Element + Debug {
    /// The least even number that adding one does not change.
    const FULL: f64;
    /// A quiet NaN, a negative quiet NaN with a payload, and a signalling NaN.
    const NANS: [Self; 3];

    /// To nearest, ties to even.
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
    /// The largest finite value.
    fn most() -> f64;
    /// The smallest value above zero, which is subnormal.
    fn least() -> f64;
    /// The product, computed in the wider type and rounded once.
    fn product(self, other: Self) -> Self;
    fn quotient(self, by: usize) -> Self;
}

macro_rules! floats {
    ($($float:ty, $wide:ty, $full:expr, $nans:expr, $of:expr);+ $(;)?) => {$(
        impl Float for $float {
            const FULL: f64 = $full;
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

            fn product(self, other: Self) -> Self {
                Self::of(f64::from(self.value() as $wide * other.value() as $wide))
            }

            fn quotient(self, by: usize) -> Self {
                Self::of(f64::from(self.value() as $wide / by as $wide))
            }
        }
    )+};
}

floats! {
    f16, f32, 2048.0, [0x7e00, 0xfe01, 0x7c01], f16::from_f64;
    bf16, f32, 256.0, [0x7fc0, 0xffc1, 0x7f81], bf16::from_f64;
    f32, f32, 16_777_216.0, [0x7fc0_0000, 0xffc0_0001, 0x7f80_0001], |value| value as f32;
    f64, f64, 9_007_199_254_740_992.0,
        [0x7ff8 << 48, 0xfff8 << 48 | 1, 0x7ff0 << 48 | 1], |value| value;
}

/// The bits to compare: all NaNs are equal, and -0 differs from +0.
fn bits(value: f64) -> u64 {
    if value.is_nan() { u64::MAX } else { value.to_bits() }
}

/// Asserts that all reductions of `parts`, one list a rank, give `expected`.
fn check_floats<T: Float>(comm: &mut Communicator, parts: &[Vec<T>], op: ReduceOp, expected: &[T]) {
    for (way, found) in reductions(comm, &parts[comm.rank()], op) {
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let brought: Vec<T> = parts.iter().map(|part| part[at]).collect();
            assert_eq!(
                bits(found.value()),
                bits(expected.value()),
                "{found:?} of {brought:?} by {way}"
            );
        }
    }
}

/// One list a rank: at place `p`, rank `p` has `odd` and the others have `other`, so that each rank
/// has `odd` at one place.
fn odd_one_out<T: Float>(world: usize, odd: f64, other: f64) -> Vec<Vec<T>> {
    let part = |rank| (0..world).map(|at| T::of(if at == rank { odd } else { other })).collect();
    (0..world).map(part).collect()
}

fn nan_wins<T: Float>(comm: &mut Communicator) {
    for nan in T::NANS {
        let mut parts = odd_one_out::<T>(comm.world(), 0.0, 1.5);
        (0..comm.world()).for_each(|rank| parts[rank][rank] = nan);
        let expected = vec![nan; comm.world()];
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
            check_floats(comm, &parts, op, &expected);
        }
    }
}

/// Cases with one result in every order of combination.
fn corners<T: Float>(comm: &mut Communicator) {
    let world = comm.world();
    let infinite = f64::INFINITY;
    let most = T::most();
    let least = T::least();
    let rounded_sum = |a: f64, b: f64| T::of(a + b * (world - 1) as f64).value();
    let table = [
        // A sum does not begin with a zero of its own, which would lose the sign of -0.
        (ReduceOp::Sum, -0.0, -0.0, -0.0),
        (ReduceOp::Sum, 0.0, -0.0, 0.0),
        (ReduceOp::Sum, -infinite, 1.0, -infinite),
        (ReduceOp::Sum, -infinite, infinite, f64::NAN),
        (ReduceOp::Sum, most, most, infinite),
        // Subnormal numbers are not flushed to zero.
        (ReduceOp::Sum, least, least, rounded_sum(least, least)),
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
        // An average divides at the end, so what rounding has lost in the sum stays lost.
        (ReduceOp::Avg, most, most, infinite),
        (ReduceOp::Avg, -0.0, -0.0, -0.0),
        (ReduceOp::Avg, 2.0, 1.0, T::of((world + 1) as f64).quotient(world).value()),
    ];
    for (op, odd, other, expected) in table {
        check_floats::<T>(comm, &odd_one_out(world, odd, other), op, &vec![T::of(expected); world]);
    }
}

/// The smallest and the largest of any values, by sorting them.
fn extremes<T: Float>(comm: &mut Communicator) {
    let mut rng = SeededRng::new(7);
    let strange = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        -f64::INFINITY,
        T::most(),
        -T::most(),
        T::least(),
        -T::least(),
    ];
    let mut draw = || match rng.below(60) {
        0 => T::NANS[rng.below(3)],
        1..30 => T::of(strange[rng.below(strange.len())]),
        _ => T::of(rng.next_u64() as i64 as f64 / (1u64 << 60) as f64),
    };
    let parts: Vec<Vec<T>> =
        (0..comm.world()).map(|_| (0..301).map(|_| draw()).collect()).collect();
    let sorted = |at: usize| {
        let mut all: Vec<f64> = parts.iter().map(|part| part[at].value()).collect();
        all.sort_by(f64::total_cmp);
        if let Some(nan) = all.iter().find(|it| it.is_nan()) { vec![*nan] } else { all }
    };
    let (least, most): (Vec<_>, Vec<_>) =
        (0..301).map(sorted).map(|all| (T::of(all[0]), T::of(all[all.len() - 1]))).unzip();
    check_floats(comm, &parts, ReduceOp::Min, &least);
    check_floats(comm, &parts, ReduceOp::Max, &most);
}

/// Every step rounds to the element type: nothing is kept in a wider one until the end.
fn every_step_rounds<T: Float>(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let mine = [if rank == 0 { T::of(T::FULL) } else { T::of(1.0) }];
    comm.set_algorithm(None);
    comm.set_deterministic(true);
    let mut sum = mine;
    comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum[0].value(), T::FULL, "each of {} ones is lost", world - 1);
    // In the other order, the ones are added first.
    let mut sum = [if rank + 1 == world { T::of(T::FULL) } else { T::of(2.0) }];
    comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum[0].value(), T::FULL + 2.0 * (world - 1) as f64);
    comm.set_deterministic(false);
}

/// The product is rounded before it is added: no fused multiply-add, which would keep what rounding
/// loses.
fn products_round_before_they_are_added<T: Float>(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let mut rng = SeededRng::new(3);
    let mut draw = || T::of(1.0 + rng.below(4096) as f64 / 4096.0);
    let parts: Vec<Vec<T>> = (0..world).map(|_| (0..200).map(|_| draw()).collect()).collect();
    let factors: Vec<T> = (0..world).map(|_| draw()).collect();
    let product = |rank: usize, at: usize| parts[rank][at].product(factors[rank]).value();
    let sum =
        |at| (1..world).fold(product(0, at), |sum, rank| T::of(sum + product(rank, at)).value());
    let expected: Vec<u64> = (0..200).map(|at| bits(sum(at))).collect();
    comm.set_deterministic(true);
    let mut data = parts[rank].clone();
    comm.all_reduce(&mut data, ReduceOp::PreMulSum(Factor::new(factors[rank].value()))).unwrap();
    assert_eq!(data.iter().map(|it| bits(it.value())).collect::<Vec<_>>(), expected);
    comm.set_deterministic(false);
}

fn floats<T: Float>() {
    everywhere(|comm| {
        nan_wins::<T>(comm);
        corners::<T>(comm);
        extremes::<T>(comm);
        every_step_rounds::<T>(comm);
        products_round_before_they_are_added::<T>(comm);
    });
}

/// An integer type, of which tests need the limits and the lowest bits of longer numbers.
trait Integer: Element + Debug + PartialEq {
    const MOST: i128;
    const LEAST: i128;
    /// The lowest bits of `bits`, as many as the type has.
    fn of(bits: u128) -> Self;
    fn value(self) -> i128;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Integer for $integer {
            const MOST: i128 = Self::MAX as i128;
            const LEAST: i128 = Self::MIN as i128;

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
    everywhere(|comm| {
        let mut rng = SeededRng::new(5);
        let strange = [T::LEAST, T::MOST, 0, 1, -1, 2, T::MOST - 1, T::LEAST + 1];
        let mut draw = || {
            T::of(if rng.below(3) == 0 {
                rng.next_u64() as u128
            } else {
                strange[rng.below(8)] as u128
            })
        };
        let parts: Vec<Vec<T>> =
            (0..comm.world()).map(|_| (0..203).map(|_| draw()).collect()).collect();
        for op in ReduceOp::ALL {
            let column = |at| parts.iter().map(|part| part[at]).collect::<Vec<_>>();
            let expected: Vec<T> = (0..203).map(|at| whole(&column(at), op)).collect();
            for (way, found) in reductions(comm, &parts[comm.rank()], op) {
                assert_eq!(found, expected, "{way}");
            }
        }
    });
}

macro_rules! each {
    ($($test:ident: $check:ident::<$element:ty>),+ $(,)?) => {$(
        #[test]
        fn $test() {
            $check::<$element>();
        }
    )+};
}

each! {
    f16_keeps_the_contract: floats::<f16>,
    bf16_keeps_the_contract: floats::<bf16>,
    f32_keeps_the_contract: floats::<f32>,
    f64_keeps_the_contract: floats::<f64>,
    i8_keeps_the_contract: integers::<i8>,
    i16_keeps_the_contract: integers::<i16>,
    i32_keeps_the_contract: integers::<i32>,
    i64_keeps_the_contract: integers::<i64>,
    u8_keeps_the_contract: integers::<u8>,
    u16_keeps_the_contract: integers::<u16>,
    u32_keeps_the_contract: integers::<u32>,
    u64_keeps_the_contract: integers::<u64>,
}

/// An i8 cannot count 128 ranks, and the sum of their ones wraps to -128.
#[test]
fn an_average_may_be_over_more_ranks_than_the_type_can_count() {
    let averages = Local::new(128).timeout(TIMEOUT).run(|mut comm| {
        let mut signed = [1i8];
        let mut unsigned = [2u8];
        comm.all_reduce(&mut signed, ReduceOp::Avg).unwrap();
        comm.all_reduce(&mut unsigned, ReduceOp::Avg).unwrap();
        (signed, unsigned)
    });
    assert_eq!(averages, [([-1], [0]); 128]);
}

/// The inputs of the test above are such that a fused multiply-add would show.
#[test]
fn fusing_would_show() {
    let x = 1.0 + 1.0 / 4096.0;
    let factor = 1.0 + 1.0 / 4096.0;
    let rounded: f32 = Float::product(x as f32, factor as f32);
    assert_ne!((x as f32).mul_add(factor as f32, -rounded), 0.0);
}
