//! Buffers that begin anywhere: which stores a loop makes, and that results stay the same.

use super::{Random, assert_same};
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
        // SAFETY: the caller is responsible for the bytes.
        Self(unsafe { from.cast::<[u8; N]>().read_unaligned() })
    }

    unsafe fn store(self, to: *mut u8) {
        STORES.with_borrow_mut(|stores| stores.push(to.addr()));
        // SAFETY: the caller is responsible for the bytes.
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

/// Reduces two sources, and returns how many stores to the destination cross a line. Asserts that it
/// holds the result.
fn crossing<const N: usize>(offset: usize, len: usize) -> usize {
    let regions = [(); 2].map(|()| Region::new(len + LINE));
    let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let source = regions[1].view().slice(0, len);
    source.fill_from(&content);
    let into = regions[0].view().slice(offset, len);
    STORES.take();
    // SAFETY: all buffers have `len` bytes, more than a register; a `Recording` needs no CPU.
    unsafe {
        loops::reduce_long::<Recording<N>, u8, First>(
            into.as_mut_ptr(),
            std::ptr::null_mut(),
            &[source.as_view(); 2],
            len,
        );
    }
    assert_eq!(into.as_view().to_vec(), content, "offset {offset}, {len} bytes");
    let stores = STORES.take();
    stores.iter().filter(|address| *address / LINE != (*address + N - 1) / LINE).count()
}

/// Counts instead of measuring: only the first and the last register may cross a line.
#[test]
fn stores_cross_no_line_whatever_the_offsets() {
    let lengths = if cfg!(miri) { vec![7001] } else { vec![512, 1000, 7001, 16_384] };
    let step = if cfg!(miri) { 21 } else { 1 };
    for len in lengths {
        for into in (0..LINE).step_by(step) {
            assert!(crossing::<64>(into, len) <= 2, "offset {into}, {len} bytes");
            assert!(crossing::<32>(into, len) <= 2, "offset {into}, {len} bytes");
        }
    }
}

/// Reduces `contents`, each in memory that begins `offsets[index]` bytes after the start of a page.
/// The last two offsets are those of the destinations. Returns both, and the second one again after
/// it was published alone.
fn reduce_at(reducer: BuiltInReducer, contents: &[Vec<u8>], offsets: &[usize]) -> [Vec<u8>; 3] {
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
    let [first, second] = [into, also].map(|view| view.as_view().to_vec());
    also.fill_from(&vec![0xa5; len]);
    reducer.publish(also, &sources);
    [first, second, also.as_view().to_vec()]
}

/// Reduces `contents` to one destination. Every buffer begins a page.
fn reduce_alone(reducer: BuiltInReducer, contents: &[Vec<u8>]) -> Vec<u8> {
    let regions: Vec<Region> = contents.iter().map(|content| Region::new(content.len())).collect();
    let sources: Vec<View<'_>> = regions
        .iter()
        .zip(contents)
        .map(|(region, content)| {
            region.view().fill_from(content);
            region.view().as_view()
        })
        .collect();
    let into = Region::new(contents[0].len());
    reducer.apply(into.view(), None, &sources);
    into.view().as_view().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn offsets_do_not_change_a_result(
        seed: u64,
        kind in prop::sample::select(DataType::ALL.to_vec()),
        op in prop::sample::select(BinaryOp::ALL.to_vec()),
        k in 2usize..19,
        bytes in 1usize..40_000,
    ) {
        prop_assume!(op.supports(kind));
        let mut random = Random(seed);
        let count = bytes.div_ceil(kind.size());
        let contents: Vec<_> = (0..k).map(|_| random.elements(kind, count)).collect();
        let offsets: Vec<usize> = (0..k + 2).map(|_| random.below(LINE)).collect();
        for instructions in InstructionSet::available() {
            let reducer = BuiltInReducer::with(instructions, kind, op);
            let expected = reduce_alone(reducer, &contents);
            for moved in reduce_at(reducer, &contents, &offsets) {
                assert_same(kind, &moved, &expected, &format!("{instructions:?} {op:?} {offsets:?}"));
            }
        }
    }
}
