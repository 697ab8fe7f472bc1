//! Reductions by functions of the user: order of arguments, blocks, aliases, panics.

use super::refused;
use crate::{CustomReducer, Reducer, View, ViewMut};

/// Composes two maps x -> a x + b, with a in the upper half and b in the lower half of a number.
/// Composition is not commutative.
fn compose(left: u64, right: u64) -> u64 {
    let [a, b] = [(left >> 32) as u32, left as u32];
    let [c, d] = [(right >> 32) as u32, right as u32];
    u64::from(a.wrapping_mul(c)) << 32 | u64::from(c.wrapping_mul(b).wrapping_add(d))
}

fn composing() -> CustomReducer {
    CustomReducer::new(|left: &[u64], right: &mut [u64]| {
        left.iter().zip(right).for_each(|(left, right)| *right = compose(*left, *right));
    })
}

#[test]
fn sources_combine_from_left_to_right_in_every_length_and_place() {
    for count in [0, 1, 2, 63, 64, 65, 1023, 1024, 1025, 5000] {
        for k in 1..=5u64 {
            let number =
                |source: u64, at: u64| (source * 7919 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut sources: Vec<Vec<u64>> =
                (0..k).map(|source| (0..count).map(|at| number(source, at)).collect()).collect();
            let fold_at =
                |at| (1..k).fold(number(0, at), |left, source| compose(left, number(source, at)));
            let expected: Vec<u64> = (0..count).map(fold_at).collect();
            let mut also = vec![0u64; count as usize];
            let views: Vec<ViewMut<'_>> =
                sources.iter_mut().map(|source| ViewMut::of(source)).collect();
            let read: Vec<View<'_>> = views.iter().map(|view| view.as_view()).collect();
            Reducer::Custom(composing()).apply(
                views[k as usize / 2],
                Some(ViewMut::of(&mut also)),
                &read,
            );
            assert_eq!(also, expected, "{count} elements of {k} sources");
            assert_eq!(sources[k as usize / 2], expected);
        }
    }
}

#[test]
fn a_panic_of_the_function_passes_through_and_half_an_element_is_refused() {
    let broken = CustomReducer::new(|_: &[u8], _: &mut [u8]| panic!("no such sum"));
    let mut bytes = [0u8; 12];
    let into = ViewMut::of(&mut bytes);
    refused("no such sum", || broken.apply(into, None, &[into.as_view(); 2]));
    let why = "no multiple of the element size 8";
    refused(why, || composing().apply(into, None, &[into.as_view(); 2]));
}
