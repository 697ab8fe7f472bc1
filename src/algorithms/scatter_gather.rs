//! Large vectors from and to a root: scatter and all-gather; reduce-scatter and gather.
//!
//! ```text
//! scatter-all-gather broadcast, n = 4
//!      rank 0         rank 1        rank 2        rank 3
//! 0    in2,3 ->2
//!      in1 ->1
//!      out0 =in0 ->3
//! 1                   out1 <-0 ->0  out2 <-0      out0 <-0
//!                                   tmp3 <-0 ->3
//!                                   out2 ->1
//! 2    out1 <-1       out2 <-2                    out3 <-2 ->2
//!      out0,1 ->2     out1,2 ->3                  out3,0 ->1
//! 3                   out3,0 <-3    out3 <-3      out1,2 <-1
//!                                   out2,3 ->0
//!                                   out0,1 <-0
//! 4    out2,3 <-2
//! ```
//!
//! The root hands out parts of its vector ([`binomial`](super::binomial)), and everybody gives its
//! part to everybody ([`bruck`](super::bruck)).
//!
//! **Cost**: 2 ceil(lg n) a + 2 (n-1)/n S b, or less, because the root's own part is there at once.
//!
//! **Why**: lg n steps, in which no rank sends its vector more than twice: large vectors without
//! windows; or where many windows cost too much. The chain and the double tree send half of it, in
//! windows.
//!
//! # Reduce
//!
//! ```text
//! reduce-scatter-gather reduce, n = 4
//!      rank 0             rank 1              rank 2           rank 3
//! 0    in1,3 ->1          in0,2 ->0           in1,3 ->3        in0,2 ->2
//! 1    tmp0 =in0 +=1      tmp5 <-0 +=in1      tmp4 =in0 +=3    tmp5 <-2 +=in1
//!      tmp2 =in2 +=1 ->2  tmp7 <-0 +=in3 ->3  tmp6 =in2 +=3    tmp7 <-2 +=in3
//!                                             tmp4 ->0         tmp5 ->1
//! 2    out0 =tmp0 +=2     tmp1 =tmp5 +=3 ->0  tmp2 <-0 +=tmp6  tmp3 <-1 +=tmp7 ->2
//! 3    out1 <-1                               tmp11 <-3
//!                                             tmp2,11 ->0
//! 4    out2,3 <-2
//! ```
//!
//! Broadcast backwards: everybody combines one part ([`halving`](super::halving); if n is no power
//! of two [`pairwise`](super::pairwise), which needs no surplus ranks), and the root gathers the
//! parts.
//!
//! **Cost**: 2 lg n a + 2 (n-1)/n S b + (n-1)/n S g for a power of two; else n-1 + ceil(lg n) steps
//! of the same bytes.
//!
//! **Why**: everybody adds, not the root or the inner nodes of a tree alone.
//!
//! **Source**: M. Barnett, S. Gupta, D. Payne, L. Shuler, R. van de Geijn, J. Watts,
//! "Interprocessor collective communication library (InterCom)", SHPCC 1994; R. Rabenseifner,
//! "Optimization of collective reduction operations", ICCS 2004.

use super::compose::{Composer, SubSchedule, WholeBuffer};
use super::{Algorithm, Collective};
use crate::schedule::Schedule;

pub(super) fn broadcast(world: usize, rank: usize, root: usize) -> Schedule {
    let mut parts = Parts::new(world, rank);
    parts.then(
        Algorithm::Binomial,
        Collective::Scatter { root },
        WholeBuffer::Input,
        WholeBuffer::Output,
    );
    parts.then(Algorithm::Bruck, Collective::AllGather, WholeBuffer::Output, WholeBuffer::Output);
    parts.whole.end()
}

pub(super) fn reduce(world: usize, rank: usize, root: usize) -> Schedule {
    let mut parts = Parts::new(world, rank);
    let first =
        if world.is_power_of_two() { Algorithm::HalvingDoubling } else { Algorithm::Pairwise };
    let part = if rank == root { WholeBuffer::Output } else { parts.whole.row() };
    parts.then(first, Collective::ReduceScatter, WholeBuffer::Input, part);
    parts.then(Algorithm::Binomial, Collective::Gather { root }, part, WholeBuffer::Output);
    parts.whole.end()
}

/// Parts of all ranks, one block a rank.
struct Parts {
    whole: Composer,
    rank: usize,
    ranks: Vec<usize>,
    chunks: Vec<Vec<usize>>,
}

impl Parts {
    fn new(world: usize, rank: usize) -> Self {
        let chunks = (0..world).map(|chunk| vec![chunk]).collect();
        Self { whole: Composer::new(world), rank, ranks: (0..world).collect(), chunks }
    }

    fn then(
        &mut self,
        algorithm: Algorithm,
        collective: Collective,
        input: WholeBuffer,
        output: WholeBuffer,
    ) {
        let schedule = algorithm
            .schedule(collective, self.ranks.len(), self.rank)
            .expect("it is in the table");
        let (ranks, chunks) = (&self.ranks, &self.chunks);
        self.whole.then(&SubSchedule { schedule: &schedule, ranks, chunks, input, output });
    }
}
