//! Draws values whose reductions are exact in every order, so that there is one right result to
//! the bit, and computes that result in the simplest way. No code is shared with the kernels under
//! test.

use crate::perf::buffer::AlignedBuffer;
use maypole::{DataType, Element, ReduceOp};
use maypole::{bf16, f16};
use maypole_kernels::mix;

/// The set that values are drawn from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ValueRange {
    /// All bit patterns: for elements that are only moved, and for integers, which wrap.
    Any,
    /// Whole numbers from minus this number to this number.
    Within(i64),
    /// Whole multiples of `of`, from minus `most` times to `most` times.
    Multiples { of: i64, most: i64 },
    /// 1 and -1. Also 2, where no product over all ranks overflows.
    Signs { twos: bool },
}

/// A random number that follows from `word`.
pub(crate) const fn hash(word: u64) -> u64 {
    mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// An element type, with the arithmetic of the check.
pub(crate) trait TestElement: Element + bytemuck::Pod {
    /// The floating-point type holds every whole number up to this one exactly. `None` for
    /// integers, whose sums and products wrap.
    const EXACT: Option<i64>;
    /// The largest whole number up to which every whole number is an element of this type.
    const LARGEST: i64;
    fn drawn(word: u64, draw: ValueRange) -> Self;
    fn combined(self, other: Self, op: ReduceOp) -> Self;
    fn divided(self, by: usize) -> Self;
}

/// The set that values for `op` on `world` ranks are drawn from; `op` is `None` where elements are
/// only moved.
pub(crate) fn draw<T: TestElement>(op: Option<ReduceOp>, world: usize) -> ValueRange {
    let among = |limit: i64| (limit / world as i64).max(1);
    match (op, T::EXACT) {
        (None, _) => ValueRange::Any,
        // An average of integers is the sum divided once, so the sum must not wrap.
        (Some(ReduceOp::Avg), None) => ValueRange::Within(among(T::LARGEST).min(1000)),
        (Some(_), None) => ValueRange::Any,
        (Some(ReduceOp::Sum), Some(exact)) => ValueRange::Within(among(exact).min(8)),
        // An average of floats is the sum of the divided contributions.
        (Some(ReduceOp::Avg), Some(exact)) => {
            ValueRange::Multiples { of: world as i64, most: among(exact).min(8) }
        }
        (Some(ReduceOp::Product), Some(_)) => ValueRange::Signs { twos: world <= 15 },
        (Some(_), Some(_)) => ValueRange::Within(100),
    }
}

fn whole(word: u64, draw: ValueRange) -> i64 {
    match draw {
        ValueRange::Any => word as i64,
        ValueRange::Within(bound) => (word % (2 * bound as u64 + 1)) as i64 - bound,
        ValueRange::Multiples { of, most } => of * whole(word, ValueRange::Within(most)),
        ValueRange::Signs { twos } => match word % 8 {
            0 if twos => 2,
            few if few < 4 => 1,
            _ => -1,
        },
    }
}

macro_rules! integers {
    ($($number:ty),+) => {$(
        impl TestElement for $number {
            const EXACT: Option<i64> = None;
            const LARGEST: i64 = if (<$number>::MAX as u64) < i64::MAX as u64 {
                <$number>::MAX as i64
            } else {
                i64::MAX
            };

            fn drawn(word: u64, draw: ValueRange) -> Self {
                let whole = whole(word, draw);
                // Unsigned sums that are averaged must not wrap below zero either.
                if matches!(draw, ValueRange::Within(_)) && <$number>::MIN == 0 {
                    whole.unsigned_abs() as $number
                } else {
                    whole as $number
                }
            }

            fn combined(self, other: Self, op: ReduceOp) -> Self {
                match op {
                    ReduceOp::Product => self.wrapping_mul(other),
                    ReduceOp::Min => self.min(other),
                    ReduceOp::Max => self.max(other),
                    ReduceOp::And => self & other,
                    ReduceOp::Or => self | other,
                    ReduceOp::Xor => self ^ other,
                    _ => self.wrapping_add(other),
                }
            }

            fn divided(self, by: usize) -> Self {
                (i128::from(self) / by as i128) as $number
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($number:ty, $digits:expr, $bits:ty, $wide:ty, $widened:expr, $rounded:expr);+ $(;)?) => {$(
        impl TestElement for $number {
            const EXACT: Option<i64> = Some(1 << $digits);
            const LARGEST: i64 = 1 << $digits;

            fn drawn(word: u64, draw: ValueRange) -> Self {
                match draw {
                    ValueRange::Any => <$number>::from_bits(word as $bits),
                    _ => $rounded(whole(word, draw) as $wide),
                }
            }

            fn combined(self, other: Self, op: ReduceOp) -> Self {
                let a: $wide = $widened(self);
                let b: $wide = $widened(other);
                $rounded(match op {
                    ReduceOp::Product => a * b,
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    _ => a + b,
                })
            }

            fn divided(self, by: usize) -> Self {
                $rounded($widened(self) / by as $wide)
            }
        }
    )+};
}

floats! {
    f16, 11, u16, f32, f16::to_f32, f16::from_f32;
    bf16, 8, u16, f32, bf16::to_f32, bf16::from_f32;
    f32, 24, u32, f32, std::convert::identity, std::convert::identity;
    f64, 53, u64, f64, std::convert::identity, std::convert::identity;
}

/// The arithmetic of the check, for one element type.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    /// Draws values: their number, the seed, the reduction, and the number of ranks.
    pub(crate) numbers: fn(usize, u64, Option<ReduceOp>, usize) -> AlignedBuffer,
    /// Combines the second buffer into the first, element by element.
    pub(crate) combine: fn(&mut AlignedBuffer, &AlignedBuffer, ReduceOp),
    pub(crate) divide: fn(&mut AlignedBuffer, usize),
}

impl Arithmetic {
    pub(crate) fn of(kind: DataType) -> Self {
        maypole::with_type!(kind, T => Self::new::<T>())
    }

    fn new<T: TestElement>() -> Self {
        Self { numbers: numbers::<T>, combine: combine::<T>, divide: divide::<T> }
    }
}

fn numbers<T: TestElement>(
    count: usize,
    seed: u64,
    op: Option<ReduceOp>,
    world: usize,
) -> AlignedBuffer {
    let draw = draw::<T>(op, world);
    let mut buffer = AlignedBuffer::new(count * size_of::<T>());
    for (index, number) in buffer.as_mut_slice::<T>().iter_mut().enumerate() {
        *number = T::drawn(hash(seed ^ hash(index as u64)), draw);
    }
    buffer
}

fn combine<T: TestElement>(into: &mut AlignedBuffer, from: &AlignedBuffer, op: ReduceOp) {
    for (into, from) in into.as_mut_slice::<T>().iter_mut().zip(from.as_slice::<T>()) {
        *into = into.combined(*from, op);
    }
}

fn divide<T: TestElement>(values: &mut AlignedBuffer, by: usize) {
    for value in values.as_mut_slice::<T>() {
        *value = value.divided(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Left to right and right to left give the same bits.
    fn is_exact<T: TestElement>() {
        for world in [1, 2, 3, 4, 7, 8, 15, 16, 32] {
            for op in ReduceOp::ALL.iter().copied().filter(|op| op.supports(T::DATA_TYPE)) {
                let rows: Vec<AlignedBuffer> = (0..world)
                    .map(|rank| numbers::<T>(257, rank, Some(op), world as usize))
                    .collect();
                let divides = op == ReduceOp::Avg && T::DATA_TYPE.is_float();
                let folded = |order: &mut dyn Iterator<Item = &AlignedBuffer>| {
                    let mut order = order.map(|row| {
                        let mut row = AlignedBuffer::from(row.bytes());
                        if divides {
                            divide::<T>(&mut row, world as usize);
                        }
                        row
                    });
                    let mut sum = order.next().unwrap();
                    order.for_each(|row| combine::<T>(&mut sum, &row, op));
                    sum
                };
                let there = folded(&mut rows.iter());
                let back = folded(&mut rows.iter().rev());
                assert_eq!(there.bytes(), back.bytes(), "{} {op} of {world}", T::DATA_TYPE.name());
            }
        }
    }

    #[test]
    fn every_order_gives_the_same_bits() {
        for kind in DataType::NUMBERS {
            maypole::with_type!(kind, T => is_exact::<T>());
        }
    }

    #[test]
    fn numbers_are_not_all_the_same() {
        for kind in DataType::NUMBERS {
            for &op in ReduceOp::ALL {
                let buffer = (Arithmetic::of(kind).numbers)(100, 1, Some(op), 32);
                let first = &buffer.bytes()[..kind.size()];
                assert!(
                    buffer.bytes().chunks(kind.size()).any(|other| other != first),
                    "{} {op}",
                    kind.name()
                );
            }
        }
    }

    #[test]
    fn averages_truncate_integers() {
        assert_eq!(((-7i8).divided(2), 7u64.divided(2), 7f32.divided(2)), (-3, 3, 3.5));
    }
}
