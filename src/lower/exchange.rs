//! Programs of one exchange, for the kernel of calls of few bytes (`kernels/cuda/short.h`).
//!
//! In such a program every rank publishes a part of its input for every other rank, and folds what it reads into its
//! output. All publications have equal lengths, and each is read once.
//!
//! The kernel needs less than a walk. A publication of call `n` proves that its rank has ended call `n - 1`, so
//! places for two calls suffice, and nobody counts what was read. Each thread takes the same eight bytes of
//! all publications, and stores nothing before it has read all of them: so the folds have no order, and
//! no input is staged.

use super::device::{BufferPlaces, DeviceProgram, crosses_lanes, touches};
use super::program::{FoldSource, Program, SourceLocation};
use crate::schedule::Buffer;
use maypole_kernels::packed::{MOST_SHORT_BYTES, MOST_SHORT_RANKS, ShortProgram, UNSTORED};

impl DeviceProgram {
    /// The program of local rank `me`, whose buffers are at `places`, as one exchange. `None` if it is more, if
    /// its ranks or bytes are too many, or if its folds split the same bytes into different parts.
    ///
    /// ```
    /// use maypole::algorithms::Algorithm;
    /// use maypole::lower::{BufferPlaces, DeviceProgram, LoweringInput, lower};
    /// use maypole::schedule::collective::Collective;
    /// use maypole::schedule::hosts::Boards;
    /// use maypole::schedule::{Layout, Placement};
    ///
    /// let collective = Collective::AllReduce;
    /// let schedules = Algorithm::OneShot.schedules(collective, 4).unwrap();
    /// let request = LoweringInput {
    ///     collective,
    ///     schedules: &schedules,
    ///     layout: &Layout::even(10, 1),
    ///     element: 4,
    ///     boards: &Boards::new(&[0; 4]),
    ///     window: usize::MAX,
    ///     fingerprint: 1,
    /// };
    /// let program = lower(&request, 2, Placement::Apart).unwrap();
    /// let places = BufferPlaces { input: 0, output: 40 };
    /// let exchange = DeviceProgram::exchange(&program, 2, places).unwrap();
    /// // One fold begins with the bytes of rank 0.
    /// assert_eq!((exchange.bytes, exchange.begins), (40, 0b0001));
    /// ```
    pub fn exchange(program: &Program, me: usize, places: BufferPlaces) -> Option<ShortProgram> {
        let ranks = program.totals.len();
        let bytes = program.folds.first()?.extent.bytes(program.windows);
        let is_short = ranks <= MOST_SHORT_RANKS && bytes <= MOST_SHORT_BYTES;
        let is_on_slots = program.streams.is_empty() && program.registered.is_none();
        let is_plain = program.windows == 1 && is_short && is_on_slots;
        if !is_plain || crosses_lanes(touches(program, places)) {
            return None;
        }
        let rank_of = |source: &FoldSource| match source.from {
            SourceLocation::Board => Some(source.peer as usize),
            SourceLocation::Own(Buffer::Input) => Some(me),
            _ => None,
        };
        let (mut from, mut into) = ([None; MOST_SHORT_RANKS], [UNSTORED; MOST_SHORT_RANKS]);
        let (mut published, mut read, mut begins) = (0, 0, 0);
        for fold in &program.folds {
            let sources = &program.sources[fold.first as usize..][..usize::from(fold.count)];
            let ranks = sources.iter().map(rank_of).collect::<Option<Vec<_>>>()?;
            let own = ranks.iter().position(|rank| *rank == me).map(|at| sources[at].extent.start);
            let mask = ranks.iter().fold(0, |mask, rank| mask | 1 << rank);
            let (first, last, start) = (ranks[0], ranks[ranks.len() - 1], fold.extent.start as u32);
            let publishes = fold.audience == 0 || (ranks == [me] && published & fold.audience == 0);
            let stores = fold.into.is_none_or(|buffer| {
                let is_new = read & mask == 0 && !into.contains(&start);
                buffer == Buffer::Output && is_new && ranks.iter().copied().eq(first..=last)
            });
            if fold.extent.bytes(1) != bytes || !publishes || !stores {
                return None;
            }
            let readers = (0..MOST_SHORT_RANKS).filter(|rank| fold.audience >> rank & 1 == 1);
            readers.for_each(|reader| from[reader] = own);
            published |= fold.audience;
            if fold.into.is_some() {
                from[me] = from[me].or(own);
                let own = own.map(|at| places.input + at);
                let is_there = ranks == [me] && own == Some(places.output + fold.extent.start);
                into[last] = if is_there { UNSTORED } else { start };
                begins |= 1 << first;
                read |= mask;
            }
        }
        let everyone = (1 << ranks) - 1;
        if published != everyone & !(1 << me) || read | 1 << me != everyone {
            return None;
        }
        // The kernel reads some part of its own in any case.
        let own = from[me].or(from[(me + 1) % ranks]).unwrap_or(0);
        let from = from.map(|start| start.unwrap_or(own) as u32);
        let begins = begins | (!read as u32 & 1 << me);
        let (bytes, ranks, me) = (bytes as u32, ranks as u32, me as u32);
        Some(ShortProgram { bytes, ranks, me, begins, from, into })
    }
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
            DeviceProgram::exchange(&program, me, places)
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
                    if in_place >> me & 1 == 1 && !collective.reduces() {
                        // It is there already.
                        let own = me * BLOCK..(me + 1) * BLOCK;
                        output.resize(expected.len(), Sum::new());
                        assert!(output[own.clone()].iter().all(Sum::is_empty), "{case}");
                        output[own.clone()].clone_from_slice(&expected[own]);
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

    /// The algorithms that calls of few bytes take: `one_hop_forms`.
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
