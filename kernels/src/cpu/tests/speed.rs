//! The speed of vector instructions. Without them a reduction still gives the right result, so
//! only a measurement shows that they are used. `benches/folds.rs` prints figures.

use crate::cpu::instruction_set::InstructionSet;
use crate::{BinaryOp, BuiltInReducer, DataType, Region, View, ViewMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of a buffer. All buffers together fit into the second-level cache.
const LEN: usize = 64 << 10;

/// Longer than optimised code takes to add one at a time, on any machine. Code of a package that is tested outside of
/// this repository is not optimised, and shows no speed.
const UNOPTIMISED: Duration = Duration::from_nanos(8 * LEN as u64 / 4);

/// Adds one element at a time. The black box keeps the compiler from using vector instructions.
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

/// Compares the best of many alternating rounds, because other processes can only make a round
/// slower. A round takes a few microseconds, so that some are undisturbed on any machine. The
/// first success ends the test.
#[test]
fn vectors_are_at_least_twice_as_fast() {
    for instructions in
        InstructionSet::available().filter(|instructions| *instructions != InstructionSet::Portable)
    {
        let sum = BuiltInReducer::with(instructions, DataType::F32, BinaryOp::Sum);
        for k in [2, 3] {
            let regions: Vec<Region> = (0..=k).map(|_| Region::new(LEN)).collect();
            let into = regions[k].view();
            let sources: Vec<View<'_>> =
                regions[..k].iter().map(|region| region.view().as_view()).collect();
            let mut vector = Duration::MAX;
            let mut scalar = Duration::MAX;
            let fast_enough = (0..20_000).any(|round| {
                vector = vector.min(time(|| sum.apply(into, None, black_box(&sources))));
                scalar = scalar.min(time(|| one_by_one(into, black_box(&sources))));
                round > 20 && (scalar > 2 * vector || scalar > UNOPTIMISED)
            });
            assert!(
                fast_enough,
                "{instructions:?}, k = {k}: {vector:?} with vectors, {scalar:?} one by one"
            );
        }
    }
}
