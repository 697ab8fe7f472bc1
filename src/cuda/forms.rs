//! The forms in which calls of few bytes run, whose ranks need not pass on what they have read: one exchange.

use crate::algorithms::Algorithm;
use crate::lower::{BufferPlaces, DeviceProgram, DeviceSlots, LoweringInput, lower_for_device};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::{Layout, Placement};

/// The algorithms of one hop by which calls may run in the place of `chosen`: those with equal bits. `is_free`: the
/// program has not named the algorithm.
pub(super) fn one_hop_forms(
    collective: Collective,
    world: usize,
    (chosen, is_free): (Algorithm, bool),
) -> Vec<Algorithm> {
    let movers = vec![Algorithm::Direct, Algorithm::OneShot, Algorithm::Linear];
    let forms = match chosen {
        Algorithm::OneShot | Algorithm::TwoShot if is_free => vec![Algorithm::OneShot],
        Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Direct => vec![chosen],
        _ if is_free && !collective.reduces() => movers,
        _ => Vec::new(),
    };
    let implements = |form: &Algorithm| form.schedules(collective, world).is_some();
    forms.into_iter().filter(|form| world > 1 && implements(form)).collect()
}

/// The bytes of a chunk of `bytes` bytes in all by `form`, if its program is one exchange.
pub(super) fn chunk_of(
    form: Algorithm,
    collective: Collective,
    (bytes, world): (usize, usize),
) -> Option<usize> {
    let schedules = form.schedules(collective, world)?;
    let chunks = schedules[0].chunks;
    let request = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &Layout::even(chunks, chunks),
        element: 1,
        boards: &Boards::new(&vec![0; world]),
        window: usize::MAX,
        fingerprint: 1,
    };
    let slots = DeviceSlots { bytes: 16, count: 16 };
    let program = lower_for_device(&request, slots, 0, Placement::Apart).ok()?;
    let places = BufferPlaces { input: 0, output: usize::MAX / 2 };
    let exchange = DeviceProgram::exchange(&program, 0, places);
    exchange.map(|_| bytes.div_ceil(chunks.max(1)))
}
