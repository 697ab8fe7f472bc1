//! Buffers that begin anywhere: which stores a loop makes, and that results stay the same.

use super::{Random, assert_same};
use crate::cpu::alignment::LAG;
use crate::cpu::instruction_set::InstructionSet;
use crate::cpu::loops;
use crate::cpu::operations::{Combine, Register};
use crate::{BinaryOp, BuiltInReducer, DataType, Region, View};
use proptest::prelude::*;
use std::cell::RefCell;

const LINE: usize = 64;

thread_local! {
    /// The addresses of all stores of [`Recording`] registers, in order.
    static STORES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A register of `N` bytes that writes down where it is stored.
#[derive(Clone, Copy)]
struct Recording<const N: usize>([u8; N]);

impl<const N: usize> Register for Recording<N> {
    const BYTES: usize = N;

    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller answers for the bytes.
        Self(unsafe { from.cast::<[u8; N]>().read_unaligned() })
    }

    unsafe fn store(self, to: *mut u8) {
        STORES.with_borrow_mut(|stores| stores.push(to.addr()));
        // SAFETY: the caller answers for the bytes.
        unsafe { to.cast::<[u8; N]>().write_unaligned(self.0) }
    }
}

/// Keeps the bytes of the first source.
struct First;

impl<const N: usize> Combine<Recording<N>, u8> for First {
    unsafe fn combine(left: Recording<N>, _: Recording<N>) -> Recording<N> {
        left
    }
}

/// Reduces two sources, and returns how many stores to each of the destinations cross a line.
/// Asserts that each destination holds the result.
fn crossing<const N: usize>(into: usize, also: Option<usize>, len: usize) -> [usize; 2] {
    let regions = [(); 3].map(|()| Region::new(len + LINE));
    let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let source = regions[2].view().slice(0, len);
    source.fill_from(&content);
    let first = regions[0].view().slice(into, len);
    let second = also.map(|offset| regions[1].view().slice(offset, len));
    let second_start = second.map_or(std::ptr::null_mut(), |second| second.as_mut_ptr());
    STORES.take();
    // SAFETY: all buffers have `len` bytes, more than a register; a `Recording` needs no CPU.
    unsafe {
        loops::reduce_long::<Recording<N>, u8, First>(
            first.as_mut_ptr(),
            second_start,
            &[source.as_view(); 2],
            len,
        );
    }
    assert_eq!(first.as_view().to_vec(), content, "offset {into}, {len} bytes");
    if let Some(second) = second {
        assert_eq!(second.as_view().to_vec(), content, "offsets {into}, {also:?}, {len} bytes");
    }
    let crossing: Vec<usize> = STORES
        .take()
        .into_iter()
        .filter(|address| address / LINE != (address + N - 1) / LINE)
        .collect();
    [first.as_mut_ptr(), second_start].map(|start| {
        crossing
            .iter()
            .filter(|address| (start.addr()..start.addr() + len).contains(address))
            .count()
    })
}

/// Counts instead of measuring: only the first and the last register may cross a line.
#[test]
fn stores_cross_no_line_whatever_the_offsets() {
    let lengths = if cfg!(miri) { vec![7001] } else { vec![512, 1000, 2 * LAG, 7001, 16_384] };
    let step = if cfg!(miri) { 21 } else { 1 };
    for len in lengths {
        for into in (0..LINE).step_by(step) {
            assert!(crossing::<64>(into, None, len)[0] <= 2, "offset {into}, {len} bytes");
            assert!(crossing::<32>(into, None, len)[0] <= 2, "offset {into}, {len} bytes");
            for also in (0..LINE).step_by(7 * step).filter(|_| len >= 2 * LAG) {
                let counts =
                    [crossing::<64>(into, Some(also), len), crossing::<32>(into, Some(also), len)];
                assert!(
                    counts.as_flattened().iter().all(|count| *count <= 2),
                    "offsets {into} and {also}, {len} bytes: {counts:?}"
                );
            }
        }
    }
}

/// Reduces `contents`, each in memory that begins `offsets[index]` bytes behind a page. The last
/// two offsets are those of the destinations, which the result holds.
fn reduce_at(reducer: BuiltInReducer, contents: &[Vec<u8>], offsets: &[usize]) -> [Vec<u8>; 2] {
    let len = contents[0].len();
    let regions: Vec<Region> = offsets.iter().map(|_| Region::new(len + LINE)).collect();
    let at = |index: usize| regions[index].view().slice(offsets[index], len);
    let sources: Vec<View<'_>> = contents
        .iter()
        .enumerate()
        .map(|(index, content)| {
            at(index).fill_from(content);
            at(index).as_view()
        })
        .collect();
    let [into, also] = [at(contents.len()), at(contents.len() + 1)];
    reducer.apply(into, Some(also), &sources);
    [into, also].map(|view| view.as_view().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn offsets_do_not_change_a_result(
        seed: u64,
        kind in prop::sample::select(DataType::ALL.to_vec()),
        op in prop::sample::select(BinaryOp::ALL.to_vec()),
        k in 2usize..7,
        bytes in 1usize..12_000,
    ) {
        prop_assume!(op.supports(kind));
        let mut random = Random(seed);
        let count = bytes.div_ceil(kind.size());
        let contents: Vec<_> = (0..k).map(|_| random.elements(kind, count)).collect();
        let offsets: Vec<usize> = (0..k + 2).map(|_| random.below(LINE)).collect();
        for instructions in InstructionSet::available() {
            let reducer = BuiltInReducer::with(instructions, kind, op);
            let aligned = reduce_at(reducer, &contents, &vec![0; k + 2]);
            let moved = reduce_at(reducer, &contents, &offsets);
            for (aligned, moved) in aligned.iter().zip(&moved) {
                assert_same(kind, moved, aligned, &format!("{instructions:?} {op:?} {offsets:?}"));
            }
        }
    }
}
