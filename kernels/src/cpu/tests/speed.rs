//! A fold that silently lost its vectors is still right, so only a clock can tell.

use crate::cpu::instruction_set::InstructionSet;
use crate::{BinaryOp, BuiltInReducer, DataType, Reducer, Region, View, ViewMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// In the second-instructions cache with all sources.
const LEN: usize = 64 << 10;

/// One element at a time: the black box keeps the compiler from making vectors of it.
fn one_by_one(into: ViewMut<'_>, sources: &[View<'_>]) {
    for at in 0..LEN / 4 {
        // SAFETY: all views are `LEN` bytes of a live region.
        unsafe {
            let mut sum = sources[0].as_ptr().cast::<f32>().add(at).read();
            for source in &sources[1..] {
                sum += source.as_ptr().cast::<f32>().add(at).read();
            }
            into.as_mut_ptr().cast::<f32>().add(at).write(black_box(sum));
        }
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Alternating rounds and the best of each: a busy neighbour can only make single rounds slower. A
/// round takes a few microseconds, so that some run undisturbed on any machine; and a first
/// success ends the test.
#[test]
fn vectors_are_at_least_twice_as_fast() {
    for instructions in
        InstructionSet::available().filter(|instructions| *instructions != InstructionSet::Portable)
    {
        let fold = BuiltInReducer::with(instructions, DataType::F32, BinaryOp::Sum);
        for k in [2, 3] {
            let regions: Vec<Region> = (0..=k).map(|_| Region::new(LEN)).collect();
            let into = regions[k].view();
            let sources: Vec<View<'_>> =
                regions[..k].iter().map(|region| region.view().as_view()).collect();
            let (mut vector, mut scalar) = (Duration::MAX, Duration::MAX);
            let fast_enough = (0..20_000).any(|round| {
                vector = vector.min(time(|| fold.apply(into, None, black_box(&sources))));
                scalar = scalar.min(time(|| one_by_one(into, black_box(&sources))));
                round > 20 && scalar > 2 * vector
            });
            assert!(
                fast_enough,
                "{instructions:?}, k = {k}: {vector:?} with vectors, {scalar:?} one by one"
            );
        }
    }
}

/// Figures for whoever asks: `cargo test -p maypole-kernels --release -- --ignored --nocapture
/// figures`.
#[test]
#[ignore = "prints figures and asserts nothing"]
fn figures() {
    for instructions in InstructionSet::available() {
        for (kind, op) in [
            (DataType::F32, BinaryOp::Sum),
            (DataType::F32, BinaryOp::Max),
            (DataType::BF16, BinaryOp::Sum),
            (DataType::F16, BinaryOp::Sum),
            (DataType::I64, BinaryOp::Product),
            (DataType::U8, BinaryOp::Product),
        ] {
            let fold = BuiltInReducer::with(instructions, kind, op);
            for k in [2, 3, 4, 5, 8, 16] {
                let regions: Vec<Region> = (0..=k).map(|_| Region::new(LEN)).collect();
                let into = regions[k].view();
                let sources: Vec<View<'_>> =
                    regions[..k].iter().map(|region| region.view().as_view()).collect();
                let best =
                    (0..2000).map(|_| time(|| fold.apply(into, None, black_box(&sources)))).min();
                let best = best.expect("some rounds").as_secs_f64();
                let line: Vec<_> =
                    [8, 32, 64].map(|len| line_nanoseconds(fold, into, &sources, len)).into();
                let rate = LEN as f64 / best / 1e9;
                println!(
                    "{instructions:?} {kind:?} {op:?} k={k}: {rate:.1} GB/s of result; 8, 32, 64 bytes: {line:.1?} ns"
                );
            }
        }
    }
}

/// As `figures`, of short copies: through a view, through a fold, and by the C library.
#[test]
#[ignore = "prints figures and asserts nothing"]
fn copy_figures() {
    let (from, to) = (Region::new(64), Region::new(64));
    let fold = BuiltInReducer::new(DataType::F32, BinaryOp::Sum);
    for len in [4, 8, 16, 24, 48, 64] {
        let (from, to) = (from.view().as_view().slice(0, len), to.view().slice(0, len));
        let view = nanoseconds(|| black_box(to).copy_from(black_box(from)));
        let folded = nanoseconds(|| black_box(fold).apply(black_box(to), None, black_box(&[from])));
        let combine = Reducer::from(fold);
        let combined =
            nanoseconds(|| black_box(&combine).apply(black_box(to), None, black_box(&[from])));
        // SAFETY: both views are `len` bytes of live regions.
        let library = nanoseconds(|| unsafe {
            let (to, from) = (black_box(to), black_box(from));
            if to.as_mut_ptr().cast_const() != from.as_ptr() {
                std::ptr::copy(from.as_ptr(), to.as_mut_ptr(), from.len());
            }
        });
        println!(
            "{len} bytes: view {view:.2}, fold {folded:.2}, either {combined:.2}, library {library:.2} ns"
        );
    }
}

/// Best of many rounds.
fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let mut round = || time(|| (0..1000).for_each(|_| work()));
    (0..200).map(|_| round()).min().expect("some rounds").as_secs_f64() * 1e6
}

fn line_nanoseconds(
    fold: BuiltInReducer,
    into: ViewMut<'_>,
    sources: &[View<'_>],
    len: usize,
) -> f64 {
    let sources: Vec<_> = sources.iter().map(|source| source.slice(0, len)).collect();
    let round = || {
        time(|| {
            for _ in 0..1000 {
                black_box(fold).apply(black_box(into.slice(0, len)), None, black_box(&sources));
            }
        })
    };
    (0..50).map(|_| round()).min().expect("some rounds").as_secs_f64() * 1e6
}
