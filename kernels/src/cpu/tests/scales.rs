//! Multiplication by one number with every instruction set.

use super::{Random, check_map, reference};
use crate::cpu::{instruction_set::InstructionSet, scaling::scale_with};
use crate::{BinaryOp, DataType, Scalar, View, ViewMut, scale};

#[test]
fn scaled_copies_agree_with_the_reference() {
    let mut random = Random(5);
    for (kind, instructions) in DataType::NUMBERS
        .into_iter()
        .flat_map(|kind| InstructionSet::available().map(move |instructions| (kind, instructions)))
    {
        for number in [0.0, 1.0, 3.0, 7.0, 0.1, -2.5, 1e-3, f64::NAN] {
            let Some(factor) = Scalar::from_f64(kind, number) else { continue };
            let context = format!("times {number} with {instructions:?}");
            let products = |values: &[u8]| {
                let factors = factor.bytes().repeat(values.len() / kind.size());
                reference::fold(kind, BinaryOp::Product, &[values, &factors])
            };
            check_map(&mut random, kind, &context, products, |into, from| {
                scale_with(instructions, into, from, factor);
            });
        }
    }
}

#[test]
fn integers_hold_factors_exactly_or_not_at_all() {
    let integer = |kind, value| Scalar::from_f64(kind, value).map(|scalar| scalar.bytes().to_vec());
    assert_eq!(integer(DataType::I8, -128.0), Some(vec![0x80]));
    assert_eq!(integer(DataType::I8, 128.0), None);
    assert_eq!(integer(DataType::U64, 2f64.powi(63)), Some((1u64 << 63).to_ne_bytes().to_vec()));
    for (kind, value) in [
        (DataType::U64, 2f64.powi(64)),
        (DataType::I64, 2f64.powi(63)),
        (DataType::U32, -1.0),
        (DataType::U16, 0.5),
        (DataType::I32, f64::NAN),
        (DataType::I32, f64::INFINITY),
    ] {
        assert_eq!(integer(kind, value), None, "{kind:?} {value}");
    }
}

#[test]
#[should_panic(expected = "equal lengths")]
fn a_scaled_copy_of_another_length_is_refused() {
    let one = Scalar::from_f64(DataType::U8, 1.0).expect("a byte holds one");
    scale(ViewMut::of(&mut [0u8; 3]), View::of(&[0u8; 4]), one);
}
