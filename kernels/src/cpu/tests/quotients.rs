//! Division with every instruction set.

use super::{Random, check_map, reference, refused};
use crate::cpu::{instruction_set::InstructionSet, scaling::divide_with};
use crate::{DataType, View, ViewMut, divide};

#[test]
fn quotients_agree_with_the_reference() {
    let mut random = Random(3);
    let divisors = [1, 2, 3, 7, 8, 64, 127, 128, 129, 255, 256, 257, 2049, 65_536];
    let divisors = divisors.into_iter().chain([1 << 24 | 1, 1 << 63, u64::MAX]);
    for kind in DataType::NUMBERS {
        for instructions in InstructionSet::available() {
            for by in divisors.clone() {
                let context = format!("by {by} with {instructions:?}");
                let quotients = |values: &[u8]| reference::divide(kind, values, by);
                check_map(&mut random, kind, &context, quotients, |into, from| {
                    divide_with(instructions, into, from, kind, by);
                });
            }
        }
    }
}

fn divide_in_place(values: ViewMut<'_>, kind: DataType, by: u64) {
    divide(values, values.as_view(), kind, by);
}

#[test]
fn the_most_negative_integer_divides() {
    let mut values = [i64::MIN; 3];
    divide_in_place(ViewMut::of(&mut values[..1]), DataType::I64, 1);
    divide_in_place(ViewMut::of(&mut values[1..2]), DataType::I64, 1 << 63);
    divide_in_place(ViewMut::of(&mut values[2..]), DataType::I64, u64::MAX);
    assert_eq!(values, [i64::MIN, -1, 0]);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let divided = |why, bytes: &mut [u8], kind, by| {
        refused(why, || divide_in_place(ViewMut::of(bytes), kind, by));
    };
    divided("cannot divide f32 elements by zero", &mut [], DataType::F32, 0);
    divided("no multiple of the element size 8", &mut [0; 12], DataType::I64, 2);
    refused("a division needs equal lengths", || {
        divide(ViewMut::of(&mut [0u8; 2]), View::of(&[0u8; 3]), DataType::U8, 2);
    });
}
