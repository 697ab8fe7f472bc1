//! Reductions of every type, operation, instruction set, number of sources and kind of aliasing.

use super::{Buffer, Random, assert_same, reference, refused};
use crate::cpu::instruction_set::InstructionSet;
use crate::{BinaryOp, BuiltInReducer, DataType, View, ViewMut};

#[derive(Clone, Copy, Debug)]
enum Destination {
    /// Memory of its own.
    Own,
    Source(usize),
}

/// Reduces once, also to be published where there are two destinations, and compares the destinations and
/// all guards with the reference.
fn check(
    random: &mut Random,
    reducer: BuiltInReducer,
    kind: DataType,
    op: BinaryOp,
    sources: &[&[u8]],
    places: [Option<Destination>; 2],
) {
    let expected = reference::fold(kind, op, sources);
    let mut buffers: Vec<_> = sources.iter().map(|content| Buffer::new(random, content)).collect();
    let mut own = [(); 3].map(|()| Buffer::new(random, &vec![0x5a; expected.len()]));
    let context = format!(
        "{reducer:?} {kind:?} {op:?} {} bytes, k = {}, {places:?}",
        expected.len(),
        sources.len()
    );

    let views: Vec<ViewMut<'_>> = buffers.iter_mut().map(Buffer::view).collect();
    let [first, second, alone] = own.each_mut().map(Buffer::view);
    let place = |place: Destination, own| match place {
        Destination::Own => own,
        Destination::Source(index) => views[index],
    };
    let into = place(places[0].unwrap_or(Destination::Own), first);
    let also = places[1].map(|which| place(which, second));
    let read: Vec<View<'_>> = views.iter().map(|view| view.as_view()).collect();
    if also.is_some() {
        reducer.publish(alone, &read);
        assert_same(kind, &alone.as_view().to_vec(), &expected, &context);
    }
    reducer.apply(into, also, &read);

    assert_same(kind, &into.as_view().to_vec(), &expected, &context);
    if let Some(also) = also {
        assert_same(kind, &also.as_view().to_vec(), &expected, &context);
    }
    for (index, (buffer, source)) in buffers.iter().zip(sources).enumerate() {
        buffer.assert_guards(&context);
        let written = places
            .iter()
            .flatten()
            .any(|place| matches!(place, Destination::Source(at) if *at == index));
        assert!(written || buffer.content() == *source, "source {index} changed: {context}");
    }
    own.iter().for_each(|buffer| buffer.assert_guards(&context));
}

/// Draws memory of its own, or the memory of one of the sources.
fn any_place(random: &mut Random, sources: usize) -> Destination {
    if random.below(2) == 0 { Destination::Own } else { Destination::Source(random.below(sources)) }
}

/// Every length up to a little more than the longest register, then primes and powers of two that
/// take every loop.
fn counts() -> impl Iterator<Item = usize> {
    (0..=70).chain([97, 127, 128, 257, 1021, 1024, 2053, 7001])
}

/// Elements that sources are parts of.
const POOL: usize = 8192;

fn check_kind(kind: DataType) {
    let mut random = Random(0x0dd5_eed0 + kind.size() as u64);
    let pool = random.elements(kind, POOL);
    for instructions in InstructionSet::available() {
        for op in BinaryOp::ALL.into_iter().filter(|op| op.supports(kind)) {
            let reducer = BuiltInReducer::with(instructions, kind, op);
            for k in [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17] {
                for count in counts() {
                    let len = count * kind.size();
                    let sources: Vec<_> = (0..k)
                        .map(|_| &pool[random.below(POOL - count) * kind.size()..][..len])
                        .collect();
                    let into = Some(any_place(&mut random, k));
                    let also = (random.below(2) == 0).then(|| any_place(&mut random, k));
                    check(&mut random, reducer, kind, op, &sources, [into, also]);
                }
            }
        }
    }
}

#[test]
fn every_type_agrees_with_the_reference() {
    std::thread::scope(|threads| {
        for kind in DataType::ALL {
            threads.spawn(move || check_kind(kind));
        }
    });
}

/// Combines all 65,536 values with random values, by every operation.
#[test]
fn every_half_rounds_as_the_reference_does() {
    for kind in [DataType::F16, DataType::BF16] {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut random = Random(11);
        for instructions in InstructionSet::available() {
            for op in BinaryOp::ALL.into_iter().filter(|op| op.supports(kind)) {
                let reducer = BuiltInReducer::with(instructions, kind, op);
                let other = random.elements(kind, 65_536);
                let mut result = vec![0u8; all.len()];
                reducer.apply(ViewMut::of(&mut result), None, &[View::of(&all), View::of(&other)]);
                let expected = reference::fold(kind, op, &[&all, &other]);
                assert_same(kind, &result, &expected, &format!("{instructions:?} {kind:?} {op:?}"));
            }
        }
    }
}

/// If a destination overlaps a source in part, its numbers are unspecified, but the memory around
/// the destination stays as it was.
#[test]
fn partial_overlap_writes_nothing_outside() {
    for instructions in InstructionSet::available() {
        for len in [4, 8, 60, 64, 68, 256, 1024, 1028] {
            let mut bytes = vec![1u8; 2048];
            let all = ViewMut::of(&mut bytes);
            let sources = [all.as_view().slice(500, len), all.as_view().slice(504, len)];
            BuiltInReducer::with(instructions, DataType::F32, BinaryOp::Max).apply(
                all.slice(508, len),
                None,
                &sources,
            );
            assert!(bytes[..508].iter().chain(&bytes[508 + len..]).all(|byte| *byte == 1));
        }
    }
}

/// What is no fold, and what its panic says.
#[test]
fn wrong_views_and_types_are_refused() {
    let sum = BuiltInReducer::new(DataType::F32, BinaryOp::Sum);
    let (mut into, mut short, mut half) = ([0f32; 4], [0f32; 3], [0u8; 6]);
    let [into, short] = [ViewMut::of(&mut into), ViewMut::of(&mut short)];
    let half = ViewMut::of(&mut half);
    let read = into.as_view();
    refused("at least one source", || sum.apply(ViewMut::EMPTY, None, &[]));
    refused("equal lengths", || sum.apply(into, None, &[read, short.as_view()]));
    refused("equal lengths", || sum.apply(into, Some(short), &[read; 2]));
    let why = "no multiple of the element size 4";
    refused(why, || sum.apply(half, None, &[half.as_view(); 2]));
    let why = "Xor is not defined for bf16 elements";
    refused(why, || {
        let _ = BuiltInReducer::new(DataType::BF16, BinaryOp::Xor);
    });
}
