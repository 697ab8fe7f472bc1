//! Programs of one exchange, for the kernel of calls of few bytes (`kernels/cuda/short.h`).
//!
//! In such a program every rank publishes a part of its input for every other rank, and folds what it reads into its
//! output. All publications have equal lengths, and each is read once.
//!
//! The kernel needs less than a walk. A publication of call `n` proves that its rank has ended call `n - 1`, so
//! places for two calls suffice, and nobody counts what was read. Each thread takes the same eight bytes of
//! all publications, and stores nothing before it has read all of them: so the folds have no order, and
//! no input is staged.

use super::device::{BufferPlaces, crosses_lanes, touches};
use super::program::{FoldSource, Program, SourceLocation};
use crate::schedule::Buffer;
use maypole_kernels::packed::{MOST_SHORT_BYTES, MOST_SHORT_RANKS, ShortProgram, UNSTORED};

/// The program of local rank `me`, whose buffers are at `places`, as one exchange. `None` if it is more, if its
/// ranks or bytes are too many, or if its folds split the same bytes into different parts.
pub(crate) fn exchange(program: &Program, me: usize, places: BufferPlaces) -> Option<ShortProgram> {
    let ranks = program.totals.len();
    let is_on_slots = program.streams.is_empty() && program.registered.is_none();
    let bytes = program.folds.first()?.extent.bytes(program.windows);
    let is_short = program.windows == 1 && ranks <= MOST_SHORT_RANKS && bytes <= MOST_SHORT_BYTES;
    if !is_on_slots || !is_short || crosses_lanes(touches(program, places)) {
        return None;
    }
    let rank_of = |source: &FoldSource| match source.from {
        SourceLocation::Board => Some(source.peer as usize),
        SourceLocation::Own(Buffer::Input) => Some(me),
        _ => None,
    };
    let (mut begins, mut from) = (0, [None; MOST_SHORT_RANKS]);
    let mut into = [UNSTORED; MOST_SHORT_RANKS];
    let (mut published, mut read) = (0, 0);
    for fold in &program.folds {
        let sources = &program.sources[fold.first as usize..][..usize::from(fold.count)];
        let combined = sources.iter().map(rank_of).collect::<Option<Vec<_>>>()?;
        let own = combined.iter().position(|rank| *rank == me).map(|at| sources[at].extent.start);
        let mask = combined.iter().fold(0, |mask, rank| mask | 1 << rank);
        let mut is_right = fold.extent.bytes(1) == bytes;
        if fold.audience != 0 {
            is_right &= combined == [me] && published & fold.audience == 0;
            published |= fold.audience;
            let readers = (0..ranks).filter(|reader| fold.audience >> reader & 1 == 1);
            readers.for_each(|reader| from[reader] = own);
        }
        if let Some(buffer) = fold.into {
            let (first, last) = (combined[0], combined[combined.len() - 1]);
            let are_in_row = combined.iter().copied().eq(first..=last);
            is_right &= buffer == Buffer::Output && are_in_row && read & mask == 0;
            is_right &= !into.contains(&(fold.extent.start as u32));
            read |= mask;
            begins |= 1 << first;
            into[last] = fold.extent.start as u32;
            from[me] = from[me].or(own);
        }
        if !is_right {
            return None;
        }
    }
    let others = (1 << ranks) - 1 & !(1 << me);
    if published != others || read | 1 << me != others | 1 << me {
        return None;
    }
    // The kernel reads some part of its own in any case.
    begins |= !read as u32 & 1 << me;
    let own = from[me].or(from[(me + 1) % ranks]);
    let from = from.map(|start| start.or(own).unwrap_or(0) as u32);
    let (ranks, me) = (ranks as u32, me as u32);
    Some(ShortProgram { bytes: bytes as u32, ranks, me, begins, from, into })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::lower::{DeviceSlots, LoweringInput, lower_for_device};
    use crate::schedule::collective::{Collective, HeldChunks};
    use crate::schedule::hosts::Boards;
    use crate::schedule::{Layout, Placement};

    /// Elements of a block.
    const BLOCK: usize = 3;

    /// The exchanges of all ranks, of which those of `in_place`, by bits, call in place. `None` if the algorithm
    /// does not implement the collective.
    fn exchanges(
        algorithm: Algorithm,
        collective: Collective,
        world: usize,
        in_place: usize,
    ) -> Option<Vec<Option<ShortProgram>>> {
        let schedules = algorithm.schedules(collective, world)?;
        let layout = Layout::even(BLOCK * world, schedules[0].chunks);
        let request = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards: &Boards::new(&vec![0; world]),
            window: usize::MAX,
            fingerprint: 1,
        };
        let slots = DeviceSlots { bytes: 64 << 10, count: 16 };
        let of_rank = |me| {
            let start = |held: HeldChunks| layout.held(held).start;
            let (placement, places) = match in_place >> me & 1 == 1 {
                false => (Placement::Apart, BufferPlaces { input: 0, output: usize::MAX / 2 }),
                true => {
                    let (input, output) = (collective.input(me), collective.output(me));
                    let places = BufferPlaces { input: start(input), output: start(output) };
                    (Placement::InPlace, places)
                }
            };
            let program = lower_for_device(&request, slots, me, placement).unwrap();
            exchange(&program, me, places)
        };
        Some((0..world).map(of_rank).collect())
    }

    /// What a fold combined, in order: bytes of inputs, by rank and place.
    type Sum = Vec<(usize, usize)>;

    /// The output of rank `me`, as the kernel leaves it.
    fn output(all: &[ShortProgram], me: usize) -> Vec<Sum> {
        let mine = &all[me];
        let bytes = mine.bytes as usize;
        let mut output = vec![Vec::new(); mine.needs()[1] as usize];
        for at in 0..bytes {
            let mut sum = Sum::new();
            for (rank, its) in all.iter().enumerate() {
                if mine.begins >> rank & 1 == 1 {
                    sum.clear();
                }
                sum.push((rank, its.from[me] as usize + at));
                if mine.into[rank] != UNSTORED {
                    let place = &mut output[mine.into[rank] as usize + at];
                    assert_eq!(*place, Sum::new(), "each byte is stored once");
                    *place = sum.clone();
                }
            }
        }
        output
    }

    #[test]
    fn an_exchange_leaves_what_the_schedules_leave() {
        for world in 2..=MOST_SHORT_RANKS {
            let whole = BLOCK * world;
            let all = |at: usize| (0..world).map(|rank| (rank, at)).collect::<Sum>();
            let of_blocks = |start: usize| {
                let places = (0..whole).map(move |at| (at / BLOCK, start + at % BLOCK));
                places.map(|it| vec![it]).collect::<Vec<Sum>>()
            };
            let mixtures = [0, usize::MAX, 0b1010_0110];
            for (in_place, me) in mixtures.iter().flat_map(|it| (0..world).map(move |me| (*it, me)))
            {
                let check = |algorithm, collective, expected: Vec<Sum>| {
                    let all = exchanges(algorithm, collective, world, in_place).unwrap();
                    let all: Option<Vec<_>> = all.into_iter().collect();
                    let case = format!("{world} ranks, {in_place:b} in place: {collective:?}");
                    let all = all.unwrap_or_else(|| panic!("{case} is no exchange"));
                    let mut output = output(&all, me);
                    if in_place >> me & 1 == 1 && collective == Collective::AllGather {
                        // It is there already.
                        for at in 0..BLOCK {
                            output[me * BLOCK + at] = vec![(me, at)];
                        }
                    }
                    assert_eq!(output, expected, "{case}, rank {me}");
                };
                let sums = |from: usize, bytes| (from..from + bytes).map(all).collect();
                check(Algorithm::OneShot, Collective::AllReduce, sums(0, whole));
                check(Algorithm::Direct, Collective::ReduceScatter, sums(me * BLOCK, BLOCK));
                check(Algorithm::Direct, Collective::AllGather, of_blocks(0));
                check(Algorithm::Direct, Collective::AllToAll, of_blocks(me * BLOCK));
            }
        }
    }

    /// The algorithms that calls of few bytes take: `DeviceRank::one_hop_forms`.
    #[test]
    fn all_ranks_find_the_same_however_they_call() {
        let forms = [Algorithm::OneShot, Algorithm::TwoShot, Algorithm::Direct];
        let cases = (2..=9).flat_map(|world| forms.map(|form| (world, form)));
        for (world, algorithm, collective) in
            cases.flat_map(|(world, form)| Collective::all(1).map(|it| (world, form, it)))
        {
            let Some(apart) = exchanges(algorithm, collective, world, 0) else { continue };
            let in_place = exchanges(algorithm, collective, world, usize::MAX).unwrap();
            let is_one = algorithm != Algorithm::TwoShot && world <= MOST_SHORT_RANKS;
            let alike = apart.iter().chain(&in_place).all(|it| it.is_some() == is_one);
            assert!(alike, "{world} ranks, {algorithm}, {collective:?}");
        }
    }
}
