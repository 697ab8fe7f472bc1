//! Compares every instruction set with a naive reference.

mod custom;
mod folds;
mod offsets;
mod quotients;
mod reference;
mod scales;
mod speed;

use crate::{DataType, View, ViewMut};
use half::{bf16, f16};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Asserts that `call` panics and says why.
#[track_caller]
fn refused(why: &str, call: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err(why);
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(said.contains(why), "{said}");
}

/// Pseudo-random numbers (SplitMix64), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::mix(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Draws one element: any bits, a number of ordinary size, or a special value.
    fn element(&mut self, kind: DataType) -> Vec<u8> {
        let any = self.next();
        let small = (any % 2001) as f32 / 8.0 - 125.0;
        let special = SPECIAL_VALUES[(any >> 32) as usize % SPECIAL_VALUES.len()];
        let bits = match (self.below(3), kind) {
            (0, _) => any,
            (1, DataType::F16) => f16::from_f32(small).to_bits().into(),
            (1, DataType::BF16) => bf16::from_f32(small).to_bits().into(),
            (1, DataType::F32) => small.to_bits().into(),
            (1, DataType::F64) => f64::from(small).to_bits(),
            (1, _) => (any as i64 % 21 - 10).cast_unsigned(),
            (_, DataType::F16) => special[0],
            (_, DataType::BF16) => special[1],
            (_, DataType::F32) => special[2],
            (_, DataType::F64) => special[3],
            // The extremes of every width of integer.
            (_, _) => [
                0,
                1,
                u64::MAX,
                0x8080_8080_8080_8080,
                0x7f7f_7f7f_7f7f_7f7f,
                1 << 63,
                u64::MAX >> 1,
            ][any as usize % 7],
        };
        bits.to_le_bytes()[..kind.size()].to_vec()
    }

    fn elements(&mut self, kind: DataType, count: usize) -> Vec<u8> {
        (0..count).flat_map(|_| self.element(kind)).collect()
    }
}

/// Special values, as f16, bf16, f32 and f64.
const SPECIAL_VALUES: [[u64; 4]; 12] = [
    [0x0000, 0x0000, 0x0000_0000, 0x0000_0000_0000_0000], // 0
    [0x8000, 0x8000, 0x8000_0000, 0x8000_0000_0000_0000], // -0
    [0x7c00, 0x7f80, 0x7f80_0000, 0x7ff0_0000_0000_0000], // infinity
    [0xfc00, 0xff80, 0xff80_0000, 0xfff0_0000_0000_0000],
    [0x7e00, 0x7fc0, 0x7fc0_0000, 0x7ff8_0000_0000_0000], // NaN
    [0x7c01, 0x7f81, 0x7f80_0001, 0x7ff0_0000_0000_0001], // signalling NaN
    [0xffff, 0xffff, 0xffff_ffff, 0xffff_ffff_ffff_ffff], // NaN, all ones
    [0x0001, 0x0001, 0x0000_0001, 0x0000_0000_0000_0001], // least denormal
    [0x83ff, 0x807f, 0x807f_ffff, 0x800f_ffff_ffff_ffff], // greatest denormal, negative
    [0x7bff, 0x7f7f, 0x7f7f_ffff, 0x7fef_ffff_ffff_ffff], // greatest finite
    [0x0400, 0x0080, 0x0080_0000, 0x0010_0000_0000_0000], // least normal
    [0x3c01, 0x3f81, 0x3f80_0001, 0x3ff0_0000_0000_0001], // just above 1
];

/// Bytes at any address, between guard bytes that must not change.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    const GUARD: u8 = 0xa5;

    fn new(random: &mut Random, content: &[u8]) -> Self {
        let start = 64 + random.below(64);
        let len = content.len();
        let mut bytes = vec![Self::GUARD; start + len + 64];
        bytes[start..start + len].copy_from_slice(content);
        Self { bytes, start, len }
    }

    fn view(&mut self) -> ViewMut<'_> {
        ViewMut::of(&mut self.bytes).slice(self.start, self.len)
    }

    fn content(&self) -> Vec<u8> {
        View::of(&self.bytes).slice(self.start, self.len).to_vec()
    }

    fn assert_guards(&self, context: &str) {
        let before = &self.bytes[..self.start];
        let after = &self.bytes[self.start + self.len..];
        assert!(
            before.iter().chain(after).all(|byte| *byte == Self::GUARD),
            "bytes outside the buffer changed: {context}"
        );
    }
}

/// Asserts equal bits, except that any NaN equals any NaN.
#[track_caller]
fn assert_same(kind: DataType, got: &[u8], expected: &[u8], context: &str) {
    if got == expected {
        return;
    }
    let size = kind.size();
    assert_eq!(got.len(), expected.len(), "{context}");
    for (index, (got, expected)) in got.chunks(size).zip(expected.chunks(size)).enumerate() {
        let same =
            got == expected || reference::is_nan(kind, got) && reference::is_nan(kind, expected);
        assert!(same, "element {index} is {got:02x?}, not {expected:02x?}: {context}");
    }
}

/// Asserts that `map` writes `expected` for `values` of any length and place, also in place, and nothing
/// else.
fn check_map(
    random: &mut Random,
    kind: DataType,
    context: &str,
    expected: impl Fn(&[u8]) -> Vec<u8>,
    map: impl Fn(ViewMut<'_>, View<'_>),
) {
    for count in (0..=40).chain([63, 64, 65, 257]) {
        let values = random.elements(kind, count);
        let context = format!("{kind:?} {count} elements {context}");
        let mut from = Buffer::new(random, &values);
        let mut into = Buffer::new(random, &vec![0xee; values.len()]);
        map(into.view(), from.view().as_view());
        assert_eq!(from.content(), values, "the source of {context}");
        let place = from.view();
        map(place, place.as_view());
        for buffer in [&into, &from] {
            assert_same(kind, &buffer.content(), &expected(&values), &context);
            buffer.assert_guards(&context);
        }
    }
}
