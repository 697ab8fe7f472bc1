//! Draws values whose reductions are exact in every order, so that there is one right result to
//! the bit, and computes that result in the simplest way: in whole numbers. No code is shared with
//! the kernels under test.

use maypole::{DataType, ReduceOp};
use maypole::{bf16, f16};
use maypole_kernels::mix;

/// The set that values are drawn from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ValueRange {
    /// All values of an integer type: sums and products wrap.
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

/// The set that values for `op` on `world` ranks are drawn from.
fn draw(kind: DataType, op: ReduceOp, world: usize) -> ValueRange {
    // Up to here, the type holds every whole number.
    let exact: i64 = match kind {
        DataType::F16 => 1 << 11,
        DataType::BF16 => 1 << 8,
        DataType::F32 => 1 << 24,
        DataType::F64 => 1 << 53,
        _ => i64::MAX >> (64 - 8 * kind.size()),
    };
    let among = (exact / world as i64).max(1);
    match (op, kind.is_float()) {
        // An average of integers is the sum divided once, so the sum must not wrap.
        (ReduceOp::Avg, false) => ValueRange::Within(among.min(1000)),
        (_, false) => ValueRange::Any,
        (ReduceOp::Sum, true) => ValueRange::Within(among.min(8)),
        // An average of floats is the sum of the divided contributions.
        (ReduceOp::Avg, true) => ValueRange::Multiples { of: world as i64, most: among.min(8) },
        (ReduceOp::Product, true) => ValueRange::Signs { twos: world <= 15 },
        (_, true) => ValueRange::Within(100),
    }
}

fn is_unsigned(kind: DataType) -> bool {
    matches!(kind, DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64)
}

fn whole(kind: DataType, word: u64, draw: ValueRange) -> i128 {
    let within = |bound: i64| (word % (2 * bound as u64 + 1)) as i128 - i128::from(bound);
    let unused = 64 - 8 * kind.size() as u32;
    match draw {
        ValueRange::Any if is_unsigned(kind) => (word >> unused).into(),
        ValueRange::Any => (word as i64 >> unused).into(),
        // Unsigned sums that are averaged must not wrap below zero either.
        ValueRange::Within(bound) if is_unsigned(kind) => within(bound).abs(),
        ValueRange::Within(bound) => within(bound),
        ValueRange::Multiples { of, most } => i128::from(of) * within(most),
        ValueRange::Signs { twos } => match word % 8 {
            0 if twos => 2,
            few if few < 4 => 1,
            _ => -1,
        },
    }
}

/// Draws `count` values for a reduction over `world` ranks.
pub(crate) fn numbers(
    kind: DataType,
    count: usize,
    seed: u64,
    op: ReduceOp,
    world: usize,
) -> Vec<i128> {
    let draw = draw(kind, op, world);
    (0..count).map(|index| whole(kind, hash(seed ^ hash(index as u64)), draw)).collect()
}

/// The result of `op` over values of `world` ranks, or of the first of them. The low bits are those
/// of integers that wrap.
pub(crate) fn reduced(values: impl Iterator<Item = i128>, op: ReduceOp, world: usize) -> i128 {
    let all = values.reduce(|a, b| match op {
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
        _ => a.wrapping_add(b),
    });
    let all = all.unwrap_or_default();
    if op == ReduceOp::Avg { all / world as i128 } else { all }
}

/// Appends `value` as an element of type `kind`.
pub(crate) fn push(bytes: &mut Vec<u8>, kind: DataType, value: i128) {
    match kind {
        DataType::F16 => bytes.extend(f16::from_f32(value as f32).to_ne_bytes()),
        DataType::BF16 => bytes.extend(bf16::from_f32(value as f32).to_ne_bytes()),
        DataType::F32 => bytes.extend((value as f32).to_ne_bytes()),
        DataType::F64 => bytes.extend((value as f64).to_ne_bytes()),
        _ => bytes.extend(&value.to_le_bytes()[..kind.size()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `value`, rounded to the type.
    fn rounded(kind: DataType, value: f64) -> f64 {
        match kind {
            DataType::F16 => f16::from_f64(value).to_f64(),
            DataType::BF16 => bf16::from_f64(value).to_f64(),
            DataType::F32 => f64::from(value as f32),
            _ => value,
        }
    }

    /// The arithmetic of floats gives the same from the first rank to the last and back.
    #[test]
    fn every_order_gives_the_exact_result() {
        for kind in DataType::NUMBERS.into_iter().filter(|kind| kind.is_float()) {
            for op in ReduceOp::ALL.iter().copied().filter(|op| op.supports(kind)) {
                for world in [1, 2, 3, 4, 7, 8, 15, 16, 32] {
                    let rows: Vec<Vec<i128>> = (0..world)
                        .map(|rank| numbers(kind, 257, rank, op, world as usize))
                        .collect();
                    let divisor = if op == ReduceOp::Avg { world as f64 } else { 1.0 };
                    let combine = |a: f64, b: f64| match op {
                        ReduceOp::Product => rounded(kind, a * b),
                        ReduceOp::Min => a.min(b),
                        ReduceOp::Max => a.max(b),
                        _ => rounded(kind, a + b),
                    };
                    for at in 0..257 {
                        let of = |row: &Vec<i128>| rounded(kind, row[at] as f64 / divisor);
                        let there = rows.iter().map(of).reduce(combine);
                        let back = rows.iter().rev().map(of).reduce(combine);
                        let exact = reduced(rows.iter().map(|row| row[at]), op, world as usize);
                        assert_eq!(there, Some(exact as f64), "{} {op} of {world}", kind.name());
                        assert_eq!(back, there, "{} {op} of {world}", kind.name());
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_not_all_the_same_and_fit_their_type() {
        for kind in DataType::NUMBERS {
            for &op in ReduceOp::ALL.iter().filter(|op| op.supports(kind)) {
                let drawn = numbers(kind, 100, 1, op, 32);
                assert!(drawn.iter().any(|other| *other != drawn[0]), "{} {op}", kind.name());
                let mut bytes = Vec::new();
                drawn.iter().for_each(|value| push(&mut bytes, kind, *value));
                assert_eq!(bytes.len(), 100 * kind.size());
            }
        }
        assert!(numbers(DataType::U64, 100, 1, ReduceOp::Min, 2).iter().all(|it| *it >= 0));
    }

    #[test]
    fn integers_wrap_and_averages_truncate() {
        let of = |values: &[i128], op| reduced(values.iter().copied(), op, values.len());
        let mut bytes = Vec::new();
        push(&mut bytes, DataType::I8, of(&[127, 1], ReduceOp::Sum));
        push(&mut bytes, DataType::U16, of(&[0xffff, 0xffff], ReduceOp::Product));
        assert_eq!(bytes, [0x80, 1, 0]);
        assert_eq!(of(&[-4, -3], ReduceOp::Avg), -3);
    }
}
