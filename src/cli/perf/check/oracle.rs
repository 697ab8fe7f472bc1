//! The inputs of every rank, and the outputs that every rank must hold after a call.
//!
//! Inputs change with every batch. They are cut from one pool of random numbers, at an offset that
//! depends on the rank and the batch. So new inputs cost one copy, and expected outputs are
//! computed for one period of the pool only. The length of the pool is prime, so that a chunk or
//! block at a wrong place, which is off by a round number of elements, differs from the right one.

use crate::perf::benchmark::{BenchmarkPoint, CallParameters};
use crate::perf::check::values::{self, hash};
use maypole::schedule::collective::Collective;
use std::ops::Range;

/// The number of elements in the pool.
const PERIOD: usize = 4093;
/// The byte that fills outputs before a call. An f32, an f64 or a wide integer of these bytes is no
/// expected value.
pub(crate) const POISON: u8 = 0xDB;

/// Computes the inputs and the expected outputs of one collective.
pub(crate) struct Oracle {
    parameters: CallParameters,
    /// The values of the pool; none where elements are moved alone.
    values: Vec<i128>,
    /// The pool itself: elements of these values, or random bits.
    pool: Vec<u8>,
}

impl Oracle {
    /// An oracle for `collective`, for every size.
    pub(crate) fn new(parameters: CallParameters, collective: Collective) -> Self {
        let CallParameters { kind, op, world, .. } = parameters;
        let seed = collective.name().len() as u64;
        let mut pool = Vec::with_capacity(PERIOD * kind.size());
        let mut values = Vec::new();
        if collective.reduces() {
            values = values::numbers(kind, PERIOD, seed, op, world);
            values.iter().for_each(|value| values::push(&mut pool, kind, *value));
        } else {
            let word = |index: usize| hash(seed ^ hash(index as u64)).to_ne_bytes();
            pool.extend((0..PERIOD).flat_map(|index| word(index).into_iter().take(kind.size())));
        }
        Self { parameters, values, pool }
    }

    /// Writes the elements `range` of the input of `rank`.
    pub(crate) fn write(&self, into: &mut [u8], rank: usize, batch: u64, range: Range<usize>) {
        let pieces = pieces(
            &self.pool,
            self.parameters.kind.size(),
            offset(rank, batch) + range.start,
            into.len(),
        );
        let mut rest = into;
        for piece in pieces {
            let (first, others) = rest.split_at_mut(piece.len());
            first.copy_from_slice(piece);
            rest = others;
        }
    }

    /// The number of elements of `output` on `rank` that differ from the expected ones.
    pub(crate) fn wrong(
        &self,
        point: &BenchmarkPoint,
        rank: usize,
        batch: u64,
        output: &[u8],
    ) -> u64 {
        let world = self.parameters.world;
        let range = point.output(rank, world);
        match point.collective {
            Collective::Barrier => 0,
            Collective::Broadcast { root } | Collective::Scatter { root } => {
                self.moved(output, root, batch, range.start)
            }
            Collective::Gather { .. } | Collective::AllGather => {
                self.blocks(output, |from| point.block(from), batch)
            }
            Collective::AllToAll => self.blocks(output, |_| point.block(rank), batch),
            Collective::Reduce { .. } | Collective::AllReduce | Collective::ReduceScatter => {
                self.combined(output, batch, range, 0..world)
            }
            Collective::Scan => self.combined(output, batch, range, 0..rank + 1),
            Collective::ExclusiveScan if rank == 0 => 0,
            Collective::ExclusiveScan => self.combined(output, batch, range, 0..rank),
        }
    }

    /// Wrong elements of `output`, which must equal the input of `rank` from element `start` on.
    fn moved(&self, output: &[u8], rank: usize, batch: u64, start: usize) -> u64 {
        let size = self.parameters.kind.size();
        differences(
            output,
            pieces(&self.pool, size, offset(rank, batch) + start, output.len()),
            size,
        )
    }

    /// Wrong elements of `output`, whose blocks are those of all ranks in their order: `block`
    /// gives the elements of a rank's input. A rank without an output has no wrong element.
    fn blocks(&self, output: &[u8], block: impl Fn(usize) -> Range<usize>, batch: u64) -> u64 {
        let mut rest = output;
        let mut wrong = 0;
        for from in 0..if output.is_empty() { 0 } else { self.parameters.world } {
            let block = block(from);
            let (bytes, others) = rest.split_at(block.len() * self.parameters.kind.size());
            wrong += self.moved(bytes, from, batch, block.start);
            rest = others;
        }
        wrong
    }

    /// Wrong elements of `output`, which must be the elements `range` of `ranks`, combined.
    fn combined(&self, output: &[u8], batch: u64, range: Range<usize>, ranks: Range<usize>) -> u64 {
        let CallParameters { kind, op, world, .. } = self.parameters;
        let mut expected = Vec::new();
        for at in range.start..range.start + range.len().min(PERIOD) {
            let value = |rank| self.values[(offset(rank, batch) + at) % PERIOD];
            values::push(&mut expected, kind, values::reduced(ranks.clone().map(value), op, world));
        }
        differences(output, pieces(&expected, kind.size(), 0, output.len()), kind.size())
    }
}

/// The element of the pool at which the input of `rank` begins.
fn offset(rank: usize, batch: u64) -> usize {
    (hash(batch ^ hash(rank as u64)) % PERIOD as u64) as usize
}

/// `len` bytes of `period`, repeated, from element `start` on, as contiguous pieces.
fn pieces(period: &[u8], size: usize, start: usize, len: usize) -> impl Iterator<Item = &[u8]> {
    let mut at = (start * size).checked_rem(period.len()).unwrap_or(0);
    let mut left = len;
    std::iter::from_fn(move || {
        let piece = &period[at..period.len().min(at + left)];
        left -= piece.len();
        at = 0;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The number of elements of `output` that differ from the pieces. Together, the pieces are as
/// long as `output`.
fn differences<'a>(output: &[u8], pieces: impl Iterator<Item = &'a [u8]>, size: usize) -> u64 {
    let mut wrong = 0;
    let mut rest = output;
    for piece in pieces {
        let (first, others) = rest.split_at(piece.len());
        if first != piece {
            let elements = first.chunks_exact(size).zip(piece.chunks_exact(size));
            wrong += elements.filter(|(got, expected)| got != expected).count() as u64;
        }
        rest = others;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::benchmark::tests::{parameters as sum_of, point};
    use maypole::{DataType, ReduceOp};

    const WORLD: usize = 3;

    fn parameters(op: ReduceOp) -> CallParameters {
        CallParameters { op, ..sum_of(DataType::I32, WORLD) }
    }

    fn ints(oracle: &Oracle, rank: usize, batch: u64, range: Range<usize>) -> Vec<i32> {
        let mut values = vec![0; range.len()];
        oracle.write(bytemuck::cast_slice_mut(&mut values), rank, batch, range);
        values
    }

    fn bytes(values: &[i32]) -> Vec<u8> {
        bytemuck::cast_slice(values).to_vec()
    }

    #[test]
    fn ranks_and_batches_differ_and_ranges_fit() {
        let oracle = Oracle::new(parameters(ReduceOp::Sum), Collective::AllReduce);
        let whole = ints(&oracle, 1, 5, 0..10_000);
        assert_eq!(ints(&oracle, 1, 5, 4000..9000), whole[4000..9000]);
        assert_ne!(ints(&oracle, 2, 5, 0..10_000), whole);
        assert_ne!(ints(&oracle, 1, 6, 0..10_000), whole);
    }

    #[test]
    fn sums_are_known_and_one_wrong_element_is_counted() {
        let oracle = Oracle::new(parameters(ReduceOp::Sum), Collective::AllReduce);
        let count = 10_000;
        let point = point(Collective::AllReduce, count);
        let all: Vec<_> = (0..WORLD).map(|rank| ints(&oracle, rank, 9, 0..count)).collect();
        let mut sums: Vec<i32> = (0..count)
            .map(|i| all.iter().fold(0i32, |sum, row| sum.wrapping_add(row[i])))
            .collect();
        assert_eq!(oracle.wrong(&point, 0, 9, &bytes(&sums)), 0);
        assert_ne!(oracle.wrong(&point, 0, 8, &bytes(&sums)), 0, "stale results are wrong");
        sums[4093] ^= 1;
        sums[9999] ^= 1;
        assert_eq!(oracle.wrong(&point, 0, 9, &bytes(&sums)), 2);
    }

    #[test]
    fn blocks_come_from_their_ranks() {
        let oracle = Oracle::new(parameters(ReduceOp::Sum), Collective::AllToAll);
        let point = point(Collective::AllToAll, 5);
        let mine: Vec<i32> = (0..WORLD).flat_map(|from| ints(&oracle, from, 1, 10..15)).collect();
        assert_eq!(oracle.wrong(&point, 2, 1, &bytes(&mine)), 0);
        assert_eq!(oracle.wrong(&point, 1, 1, &bytes(&mine)), 15);
        let point = BenchmarkPoint { collective: Collective::Gather { root: 0 }, ..point };
        let gathered: Vec<i32> =
            (0..WORLD).flat_map(|from| ints(&oracle, from, 1, from * 5..from * 5 + 5)).collect();
        assert_eq!(oracle.wrong(&point, 0, 1, &bytes(&gathered)), 0);
        assert_eq!(
            oracle.wrong(&point, 1, 1, &[]),
            0,
            "a rank without an output has no wrong element"
        );
    }

    #[test]
    fn blocks_of_unequal_lengths_come_from_their_ranks() {
        let shares = Some([3, 0, 2].into());
        let oracle = Oracle::new(parameters(ReduceOp::Sum), Collective::AllGather);
        let gather = BenchmarkPoint { shares, ..point(Collective::AllGather, 5) };
        let gathered: Vec<i32> = [(0, 0..15), (2, 15..25)]
            .into_iter()
            .flat_map(|(from, range)| ints(&oracle, from, 4, range))
            .collect();
        assert_eq!(oracle.wrong(&gather, 1, 4, &bytes(&gathered)), 0);
        let oracle = Oracle::new(parameters(ReduceOp::Sum), Collective::AllToAll);
        let exchange = BenchmarkPoint { collective: Collective::AllToAll, ..gather };
        let mine: Vec<i32> = (0..WORLD).flat_map(|from| ints(&oracle, from, 4, 15..25)).collect();
        assert_eq!(oracle.wrong(&exchange, 2, 4, &bytes(&mine)), 0);
        assert_eq!(oracle.wrong(&exchange, 1, 4, &[]), 0, "it receives nothing");
        let moved: Vec<i32> = mine.iter().skip(1).chain(&mine[..1]).copied().collect();
        assert!(oracle.wrong(&exchange, 2, 4, &bytes(&moved)) > 25);
    }

    #[test]
    fn a_scattered_block_comes_from_the_root() {
        let collective = Collective::Scatter { root: 1 };
        let oracle = Oracle::new(parameters(ReduceOp::Sum), collective);
        let point = point(collective, 7);
        assert_eq!(oracle.wrong(&point, 2, 3, &bytes(&ints(&oracle, 1, 3, 14..21))), 0);
        assert_eq!(oracle.wrong(&point, 2, 3, &bytes(&ints(&oracle, 1, 3, 0..7))), 7);
    }
}
