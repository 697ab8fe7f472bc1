//! The contents of a call's buffers before and after it, by a plain loop over the ranks.

use crate::common::SeededRng;
use crate::number::Number;
use crate::plan::{Call, What};
use maypole::ReduceOp;
use maypole::schedule::collective::{Collective, HeldChunks};
use std::ops::Range;

/// One call as one rank of its group sees it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) call: &'a Call,
    pub(crate) rank: usize,
    pub(crate) world: usize,
}

impl Place<'_> {
    fn op(&self) -> ReduceOp {
        match self.call.what {
            What::Collective { op, .. } => op,
            What::Ring { .. } | What::Pair { .. } => ReduceOp::Max,
        }
    }

    pub(crate) fn in_place(&self) -> bool {
        matches!(self.call.what, What::Collective { in_place: true, .. })
    }

    /// The elements of the whole in a buffer that holds these chunks.
    fn elements(&self, held: HeldChunks) -> Range<usize> {
        let What::Collective { collective, .. } = self.call.what else { unreachable!() };
        let count = self.call.count;
        match held {
            HeldChunks::Nothing => 0..0,
            HeldChunks::One(chunk) => chunk * count..(chunk + 1) * count,
            HeldChunks::All if collective.is_blocked() => 0..count * self.world,
            HeldChunks::All => 0..count,
        }
    }

    /// The sender of this rank's received message, and the receiver of its sent message.
    pub(crate) fn peers(&self) -> (Option<usize>, Option<usize>) {
        let (me, world) = (self.rank, self.world);
        match self.call.what {
            What::Collective { .. } => (None, None),
            What::Ring { shift } => {
                (Some((me + world - shift) % world), Some((me + shift) % world))
            }
            What::Pair { from, to } => ((me == to).then_some(from), (me == from).then_some(to)),
        }
    }

    /// The elements of the whole that this rank contributes, and those that it gets.
    pub(crate) fn held(&self) -> (Range<usize>, Range<usize>) {
        let count = self.call.count;
        match self.call.what {
            What::Collective { collective, .. } => {
                let input = self.elements(collective.input(self.rank));
                (input, self.elements(collective.output(self.rank)))
            }
            What::Ring { .. } | What::Pair { .. } => {
                let (from, to) = self.peers();
                (0..to.map_or(0, |_| count), 0..from.map_or(0, |_| count))
            }
        }
    }

    /// The elements of the whole that the output buffer is for. In place it is the input, too.
    pub(crate) fn covered(&self) -> Range<usize> {
        let (input, output) = self.held();
        if self.in_place() && input.len() > output.len() { input } else { output }
    }

    /// Element `at` of the whole, as `rank` contributes it to replay `nth`.
    pub(crate) fn contribution<T: Number>(&self, nth: usize, rank: usize, at: usize) -> T {
        let seed = self.call.seed ^ ((nth * 64 + rank) as u64) << 40 ^ at as u64;
        T::gentle(SeededRng::new(seed).next_u64(), self.op(), self.world)
    }

    /// The numbers that this rank must have after replay `nth`.
    pub(crate) fn result<T: Number>(&self, nth: usize) -> Vec<T> {
        let (_, output) = self.held();
        let of = |rank, at| self.contribution::<T>(nth, rank, at);
        let (me, world, count) = (self.rank, self.world, self.call.count);
        let What::Collective { collective, op, .. } = self.call.what else {
            let from = self.peers().0;
            return output.map(|at| of(from.expect("a message comes"), at)).collect();
        };
        let combined = |ranks: Range<usize>, at: usize| {
            let prepared = ranks.map(|rank| of(rank, at).prepared(op, world));
            let sum = prepared.reduce(|one, other| one.combine(other, op));
            sum.expect("some rank contributes").finished(op, world)
        };
        let element = |at: usize| match collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => of(root, at),
            Collective::Gather { .. } | Collective::AllGather => of(at / count, at),
            Collective::AllToAll => of(at / count, me * count + at % count),
            Collective::Scan => combined(0..me + 1, at),
            Collective::ExclusiveScan => combined(0..me, at),
            _ => combined(0..world, at),
        };
        output.map(element).collect()
    }
}
