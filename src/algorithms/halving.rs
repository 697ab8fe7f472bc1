//! Recursive halving and doubling: in round `i`, swap halves with the rank whose number differs in
//! bit `i`; then back.
//!
//! ```text
//! halving-doubling all_reduce, n = 4
//!      rank 0              rank 1              rank 2               rank 3
//! 0    in2,3 ->1           in0,1 ->0           in3,2 ->3            in1,0 ->2
//! 1    tmp0 =in0 +=1       tmp2 <-0 +=in2      tmp1 =in1 +=3        tmp3 <-2 +=in3
//!      tmp1 =in1 +=1 ->2   tmp3 <-0 +=in3 ->3  tmp0 =in0 +=3 ->0    tmp2 <-2 +=in2 ->1
//! 2    out0 =tmp0 +=2 ->2  out2 =tmp2 +=3 ->3  out1 <-0 +=tmp1 ->0  out3 <-1 +=tmp3 ->1
//! 3    out1 <-2            out3 <-3            out0 <-0             out2 <-1
//!      out0,1 ->1          out2,3 ->0          out1,0 ->3           out3,2 ->2
//! 4    out2,3 <-1          out0,1 <-0          out3,2 <-3           out1,0 <-2
//! ```
//!
//! Each exchange halves a rank's part: it sends the half that its partner keeps, and combines the
//! other half with the partner's message, in the order of the ranks. After lg n rounds every rank
//! has one chunk complete. The way back is recursive doubling, the last partner first. Nearest
//! ranks are partners in the rounds with most bytes, and they usually share a host.
//!
//! **Cost**: all-reduce 2 lg n a + 2 (n-1)/n S b + (n-1)/n S g, reduce-scatter half of the first
//! two and all of the last. If n is no power of two, [extra ranks](super::power_of_two) take a step
//! more before and one after, with S bytes each.
//!
//! **Why**: as few bytes as a ring in lg n steps instead of n: vectors of middle size.
//!
//! # Reduce-scatter
//!
//! The same rounds; in the end a core rank has its own block and that of its extra rank.
//!
//! ```text
//! halving-doubling reduce_scatter, n = 4
//!      rank 0             rank 1              rank 2             rank 3
//! 0    in1,3 ->1          in0,2 ->0           in3,1 ->3          in2,0 ->2
//! 1    tmp0 =in0 +=1      tmp1 <-0 +=in1      tmp2 =in2 +=3      tmp3 <-2 +=in3
//!      tmp2 =in2 +=1 ->2  tmp3 <-0 +=in3 ->3  tmp0 =in0 +=3 ->0  tmp1 <-2 +=in1 ->1
//! 2    out0 =tmp0 +=2     out1 =tmp1 +=3      out2 <-0 +=tmp2    out3 <-1 +=tmp3
//! ```
//!
//! **Source**: R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; here
//! with the nearest partner first, which keeps the order of the ranks.

use super::power_of_two::{CoreRank, CoreRanks, folded};
use super::steps::{combine, receive, send};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let core_ranks = CoreRanks::new(world);
    let count = core_ranks.count;
    match (collective, core_ranks.find(rank)) {
        (Collective::AllReduce, Ok(core)) => Some(all_reduce(core_ranks, core, rank)),
        (Collective::AllReduce, Err(partner)) => Some(folded(partner, count, 0..count)),
        (Collective::ReduceScatter, Ok(core)) => {
            Some(reduce_scatter(core_ranks, core, rank, world))
        }
        (Collective::ReduceScatter, Err(partner)) => Some(folded(partner, world, [rank])),
        _ => None,
    }
}

fn all_reduce(core_ranks: CoreRanks, core: CoreRank, rank: usize) -> Schedule {
    let all = 0..core_ranks.count;
    // Owners are bit-reversed chunk numbers, so a rank is responsible for consecutive chunks.
    let levels = core_ranks.levels();
    let owner = |chunk: usize| (0..levels).fold(0, |read, level| read << 1 | (chunk >> level & 1));
    let owners = Vec::from_iter(all.clone().map(owner));
    let halves = Halves { core_ranks, rank, core, own: owners[core.index], owners };
    let mut steps = halves.reduce();
    steps.extend((0..levels).rev().flat_map(|level| halves.gather(level)));
    steps.extend(core.extra.into_iter().flat_map(|to| send(to, all.clone().map(output))));
    Schedule::new(all.len(), steps)
}

fn reduce_scatter(core_ranks: CoreRanks, core: CoreRank, rank: usize, world: usize) -> Schedule {
    let owner = |chunk| core_ranks.find(chunk).map_or_else(|it| it / 2, |core| core.index);
    let owners = (0..world).map(owner).collect();
    let halves = Halves { core_ranks, rank, core, own: rank, owners };
    let mut steps = halves.reduce();
    let last = core_ranks.levels() + 1;
    steps.extend(core.extra.map(|to| Step::Send { from: halves.room(to, last), to }));
    Schedule::new(world, steps)
}

struct Halves {
    core_ranks: CoreRanks,
    rank: usize,
    core: CoreRank,
    /// The chunk that ends in this rank's output.
    own: usize,
    /// By chunk: the core rank that ends with the complete chunk.
    owners: Vec<usize>,
}

impl Halves {
    /// The chunks that core ranks with the low `level` bits of `index` share before round `level`, by their
    /// owner's distance from `index`, so that ranks are symmetric.
    fn shared(&self, index: usize, level: usize) -> impl Iterator<Item = usize> {
        let agrees = |chunk: &usize| (self.owners[*chunk] ^ index) & ((1 << level) - 1) == 0;
        let mut chunks = Vec::from_iter((0..self.owners.len()).filter(agrees));
        chunks.sort_by_key(|&chunk| self.owners[chunk] ^ index);
        chunks.into_iter()
    }

    /// Where a chunk is once `combined` messages were combined with it: two rows of scratch take
    /// turns, and the rank's own chunk ends in the output. In place the output is the input, so the
    /// chunk must have gone through scratch before.
    fn room(&self, chunk: usize, combined: usize) -> Span {
        let last = self.core_ranks.levels() + usize::from(self.core.extra.is_some());
        match combined {
            0 => input(chunk),
            _ if chunk == self.own && combined == last && last > 1 => output(chunk),
            _ => scratch((combined - 1) % 2 * self.owners.len() + chunk),
        }
    }

    /// Combines one more message of `peer` with `chunk`.
    fn join(&self, peer: usize, chunk: usize, combined: usize) -> [Step; 2] {
        combine(self.rank, peer, self.room(chunk, combined), self.room(chunk, combined + 1))
    }

    /// The steps of the reduction: all chunks of the extra rank, then half of the rest a round.
    fn reduce(&self) -> Vec<Step> {
        let whole = |extra| (0..self.owners.len()).flat_map(move |c| self.join(extra, c, 0));
        let mut steps = Vec::from_iter(self.core.extra.into_iter().flat_map(whole));
        let mut combined = usize::from(self.core.extra.is_some());
        for level in 0..self.core_ranks.levels() {
            let partner = self.core.index ^ 1 << level;
            let peer = self.core_ranks.rank(partner);
            let theirs = self.shared(partner, level + 1).map(|c| self.room(c, combined));
            let ours = self.shared(self.core.index, level + 1);
            steps.extend(send(peer, theirs));
            steps.extend(ours.flat_map(|c| self.join(peer, c, combined)));
            combined += 1;
        }
        let from = self.room(self.own, combined);
        let into = output(self.own);
        steps.extend((from != into).then_some(Step::Copy { from, into }));
        steps
    }

    fn gather(&self, level: usize) -> impl Iterator<Item = Step> {
        let partner = self.core.index ^ 1 << level;
        let peer = self.core_ranks.rank(partner);
        let ours = self.shared(self.core.index, level + 1).map(output);
        send(peer, ours).chain(receive(peer, self.shared(partner, level + 1)))
    }
}
