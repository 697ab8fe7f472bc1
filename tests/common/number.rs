//! The arithmetic contract, one scalar at a time.

use bytemuck::CheckedBitPattern;
use maypole::ReduceOp;
use maypole::{Element, bf16, f16};
use std::fmt::Debug;

/// A scalar with the arithmetic that collectives must have.
pub trait Number: Element + CheckedBitPattern + Debug {
    /// An arbitrary value; NaN, infinities and zeros come often.
    fn any(word: u64) -> Self;
    /// A value for which every order of combination by `op` among `world` ranks gives the same
    /// bits.
    #[allow(dead_code, reason = "not every test uses all of it")]
    fn gentle(word: u64, op: ReduceOp, world: usize) -> Self;
    /// One binary step, rounded.
    fn combine(self, other: Self, op: ReduceOp) -> Self;
    /// The contribution of one of `world` ranks as it is combined: multiplied by the factor of `op`,
    /// if it has one; divided by `world` for an average of floats.
    #[allow(dead_code, reason = "not every test uses all of it")]
    fn prepared(self, op: ReduceOp, world: usize) -> Self;
    /// The result of a combination: divided by `world` for an average of integers.
    #[allow(dead_code, reason = "not every test uses all of it")]
    fn finished(self, op: ReduceOp, world: usize) -> Self;
    /// The average of the contributions of all ranks, whose sum no type need hold; `None` for floats, which are
    /// divided before they are added.
    #[allow(dead_code, reason = "not every test uses all of it")]
    fn average(_: impl ExactSizeIterator<Item = Self>) -> Option<Self> {
        None
    }
    /// The bits; equal for all NaNs.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Number for $integer {
            fn any(word: u64) -> Self {
                match word % 16 {
                    0 => Self::MIN,
                    1 => Self::MAX,
                    2 => 0,
                    _ => (word >> 7) as Self,
                }
            }

            /// Integers wrap, so every order gives the same bits. Sums for averages do not: those of GPUs wrap.
            fn gentle(word: u64, op: ReduceOp, world: usize) -> Self {
                let any = Self::any(word);
                if op == ReduceOp::Avg { (any as i128 / world as i128) as Self } else { any }
            }

            fn combine(self, other: Self, op: ReduceOp) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => {
                        self.wrapping_add(other)
                    }
                    ReduceOp::Product => self.wrapping_mul(other),
                    ReduceOp::Min => self.min(other),
                    ReduceOp::Max => self.max(other),
                    ReduceOp::And => self & other,
                    ReduceOp::Or => self | other,
                    ReduceOp::Xor => self ^ other,
                    _ => unreachable!("there is no other operation"),
                }
            }

            fn prepared(self, op: ReduceOp, _: usize) -> Self {
                let ReduceOp::PreMulSum(factor) = op else { return self };
                self.wrapping_mul(factor.value() as Self)
            }

            fn finished(self, op: ReduceOp, world: usize) -> Self {
                if op == ReduceOp::Avg { self / world as Self } else { self }
            }

            fn average(all: impl ExactSizeIterator<Item = Self>) -> Option<Self> {
                let world = all.len() as i128;
                Some((all.map(|it| it as i128).sum::<i128>() / world) as Self)
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Number for bool {
    fn any(word: u64) -> Self {
        word & 16 != 0
    }

    fn gentle(word: u64, _: ReduceOp, _: usize) -> Self {
        Self::any(word)
    }

    fn combine(self, other: Self, op: ReduceOp) -> Self {
        match op {
            ReduceOp::And | ReduceOp::Min => self && other,
            ReduceOp::Or | ReduceOp::Max => self || other,
            ReduceOp::Xor => self != other,
            _ => unreachable!("bools have no sum"),
        }
    }

    fn prepared(self, _: ReduceOp, _: usize) -> Self {
        self
    }

    fn finished(self, _: ReduceOp, _: usize) -> Self {
        self
    }

    fn bits(self) -> u64 {
        self.into()
    }
}

/// IEEE 754-2019 minimum or maximum.
macro_rules! extreme {
    ($a:expr, $b:expr, $nan:expr, $negative_first:expr, $less:expr) => {{
        let a = $a;
        let b = $b;
        if a.is_nan() || b.is_nan() {
            $nan
        } else if a == b {
            if a.is_sign_negative() == $negative_first { a } else { b }
        } else if $less(a, b) {
            a
        } else {
            b
        }
    }};
}

macro_rules! floats {
    ($($float:ty, $bits:ty, $wide:ty, $widen:expr, $narrow:expr);+ $(;)?) => {$(
        impl Number for $float {
            fn any(word: u64) -> Self {
                let strange = [
                    Self::NAN,
                    Self::INFINITY,
                    Self::NEG_INFINITY,
                    Self::from_bits(0),
                    Self::MAX,
                    Self::MIN,
                    Self::from_bits(1),
                    Self::MIN_POSITIVE,
                    $narrow(-0.0),
                ];
                match word % 32 {
                    0 => strange[(word >> 8) as usize % strange.len()],
                    1..4 => Self::from_bits((word >> 8) as $bits),
                    _ => {
                        let fraction = (word >> 40) as $wide / 64.0 - 131_072.0;
                        $narrow(fraction / (1u64 << (word >> 8 & 15)) as $wide)
                    }
                }
            }

            fn gentle(word: u64, op: ReduceOp, world: usize) -> Self {
                match op {
                    ReduceOp::Min | ReduceOp::Max => Self::any(word),
                    // Powers of two: products are exact, and small enough for every type.
                    ReduceOp::Product => {
                        let powers = [1.0, -1.0, 2.0, -2.0, 0.5, 0.0];
                        $narrow(powers[(word >> 8) as usize % 6])
                    }
                    // Sums of eight products with factors of at most 4 fit the eight bits of a
                    // bf16.
                    ReduceOp::PreMulSum(_) => $narrow((word >> 8 & 15) as $wide - 7.0),
                    // Quotients by `world` are small integers.
                    ReduceOp::Avg => {
                        let most = if world <= 32 { 7 } else { 1 };
                        let share = (word >> 8) % (2 * most + 1);
                        $narrow((share as $wide - most as $wide) * world as $wide)
                    }
                    _ => $narrow((word >> 8 & 31) as $wide - 15.0),
                }
            }

            fn combine(self, other: Self, op: ReduceOp) -> Self {
                let a: $wide = $widen(self);
                let b: $wide = $widen(other);
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => $narrow(a + b),
                    ReduceOp::Product => $narrow(a * b),
                    ReduceOp::Min => $narrow(extreme!(a, b, <$wide>::NAN, true, |a, b| a < b)),
                    ReduceOp::Max => $narrow(extreme!(a, b, <$wide>::NAN, false, |a, b| a > b)),
                    _ => unreachable!("floats have no bits to combine"),
                }
            }

            fn prepared(self, op: ReduceOp, world: usize) -> Self {
                match op {
                    ReduceOp::PreMulSum(factor) => {
                        $narrow($widen(self) * factor.value() as $wide)
                    }
                    ReduceOp::Avg => $narrow($widen(self) / world as $wide),
                    _ => self,
                }
            }

            fn finished(self, _: ReduceOp, _: usize) -> Self {
                self
            }

            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_bits().into() }
            }
        }
    )+};
}

floats! {
    f16, u16, f32, f16::to_f32, f16::from_f32;
    bf16, u16, f32, bf16::to_f32, bf16::from_f32;
    f32, u32, f32, |x| x, |x| x;
    f64, u64, f64, |x| x, |x| x;
}
