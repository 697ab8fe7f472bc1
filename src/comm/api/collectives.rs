//! The collectives.

use crate::comm::Communicator;
use crate::comm::api::arguments::buffers::IntoBuffers;
use crate::comm::api::arguments::operation::{IntoOp, Op};
use crate::error::Result;
use crate::schedule::collective::Collective;

/// # Collectives
///
/// `count` is the length of a vector (broadcast, reduce, all-reduce, scans) or of one rank's block
/// (all other collectives), in elements. `world` is the number of ranks. Buffers are given
/// [in place or apart](crate::CallBuffers). Where blocks may be
/// [of unequal lengths](#unequal-blocks), a number for each rank follows the buffer that is cut.
///
/// # Errors
/// Each of these returns [`Error::Invalid`](crate::Error::Invalid), on this rank alone and before anything is sent, if
/// there is no such root or a buffer has another length than it needs; else one of the errors that
/// every call can have: see [`Error`](crate::Error).
///
/// # Panics
/// If an [`Operation`](crate::Operation) of the user's panics. The communicator has then failed.
///
/// # Unequal blocks
///
/// All ranks of an all-gather or a reduce-scatter pass the same counts, one for each rank. Of a
/// gather or a scatter, only the root's counts are used, and other ranks may pass `&[]`. A rank's
/// all-to-all has the counts that it sends to each rank, and those that it receives. Counts that
/// contradict another rank's input or output are an [`Error::Invalid`](crate::Error::Invalid) on
/// every rank. A call without counts does not match one with counts.
///
/// ```
/// use maypole::Communicator;
/// Communicator::run_local(3, |mut comm| {
///     let rank = comm.rank();
///     // To rank r, r copies of the number of this rank.
///     let mine = vec![rank as u8; 3];
///     let mut theirs = vec![9; 3 * rank];
///     comm.all_to_all((&mine, &[0, 1, 2], &mut theirs, &[rank; 3])).unwrap();
///     let expected = [vec![0; rank], vec![1; rank], vec![2; rank]].concat();
///     assert_eq!(theirs, expected);
/// });
/// ```
impl Communicator {
    /// Waits until every rank has called this.
    ///
    /// ```
    /// use maypole::Communicator;
    /// use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    /// let ready = AtomicUsize::new(0);
    /// Communicator::run_local(3, |mut comm| {
    ///     ready.fetch_add(1, SeqCst);
    ///     comm.barrier().unwrap();
    ///     assert_eq!(ready.load(SeqCst), 3);
    /// });
    /// ```
    #[doc(alias = "MPI_Barrier")]
    #[inline]
    pub fn barrier(&mut self) -> Result<()> {
        let none: (&[u8], &mut [u8]) = (&[], &mut []);
        self.issue(Collective::Barrier, none.into_buffers(), Op::NONE)
    }

    /// Copies the root's input (`count`) into every rank's output (`count`). Only the root needs an
    /// input. In place, `data` (`count`) is both.
    ///
    /// ```
    /// use maypole::Communicator;
    /// Communicator::run_local(3, |mut comm| {
    ///     let mut weights = [comm.rank() as f32; 2];
    ///     comm.broadcast(&mut weights, 1).unwrap();
    ///     assert_eq!(weights, [1.0; 2]);
    /// });
    /// ```
    #[doc(alias("MPI_Bcast", "bcast", "ncclBroadcast", "ncclBcast"))]
    #[inline]
    pub fn broadcast<'a, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        root: usize,
    ) -> Result<()> {
        self.issue(Collective::Broadcast { root }, buffers.into_buffers(), Op::NONE)
    }

    /// Combines the inputs (`count`) of all ranks into the root's output (`count`). Only the root
    /// needs an output. In place, the root's `data` (`count`) becomes the result, and that of other
    /// ranks does not change.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let losses = Communicator::run_local(3, |mut comm| {
    ///     let mut loss = [1.5 * comm.rank() as f64];
    ///     comm.reduce(&mut loss, ReduceOp::Avg, 0).unwrap();
    ///     loss[0]
    /// });
    /// assert_eq!(losses, [1.5, 1.5, 3.0]);
    /// ```
    #[doc(alias("MPI_Reduce", "ncclReduce"))]
    #[inline]
    pub fn reduce<'a, 'o, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
        root: usize,
    ) -> Result<()> {
        self.issue(Collective::Reduce { root }, buffers.into_buffers(), op.into_op())
    }

    /// Combines the inputs (`count`) of all ranks into every rank's output (`count`). In place,
    /// `data` (`count`) is both.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// Communicator::run_local(3, |mut comm| {
    ///     let mine = vec![comm.rank() as u32; 2];
    ///     let mut sum = [0; 2];
    ///     comm.all_reduce((&mine, &mut sum), ReduceOp::Sum).unwrap();
    ///     comm.all_reduce(&mut sum, ReduceOp::Max).unwrap();
    ///     assert_eq!(sum, [3; 2]);
    /// });
    /// ```
    #[doc(alias("MPI_Allreduce", "allreduce", "ncclAllReduce", "all_reduce_tensor"))]
    #[inline]
    pub fn all_reduce<'a, 'o, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        self.issue(Collective::AllReduce, buffers.into_buffers(), op.into_op())
    }

    /// Collects the inputs (`count`) of all ranks, in rank order, in the root's output (`world *
    /// count`). Only the root needs an output.
    ///
    /// In place, the root's `data` is the whole (`world * count`), in which its own block is in
    /// place already. The `data` of any other rank is its block (`count`). With counts, those of the
    /// output, rank `r` brings `counts[r]` elements.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let results = Communicator::run_local(3, |mut comm| {
    ///     let mine = [comm.rank() as u32, 7];
    ///     // Only the root needs room for the whole.
    ///     let mut all = vec![0; if comm.rank() == 0 { 6 } else { 0 }];
    ///     comm.gather((&mine, &mut all), 0).unwrap();
    ///     all
    /// });
    /// assert_eq!(results, [vec![0, 7, 1, 7, 2, 7], vec![], vec![]]);
    /// ```
    #[doc(alias("MPI_Gather", "MPI_Gatherv", "gatherv", "ncclGather"))]
    #[inline]
    pub fn gather<'a, T>(&mut self, buffers: impl IntoBuffers<'a, T>, root: usize) -> Result<()> {
        self.issue(Collective::Gather { root }, buffers.into_buffers(), Op::NONE)
    }

    /// Collects the inputs (`count`) of all ranks, in rank order, in every rank's output (`world *
    /// count`).
    ///
    /// In place, `data` is the whole (`world * count`), in which this rank's block is in place
    /// already. With counts, those of the output, rank `r` brings `counts[r]` elements:
    ///
    /// ```
    /// use maypole::Communicator;
    /// let gathered = Communicator::run_local(3, |mut comm| {
    ///     let mine = vec![comm.rank() as u8; comm.rank()];
    ///     let mut all = [9; 3];
    ///     comm.all_gather((&mine, &mut all, &[0, 1, 2])).unwrap();
    ///     all
    /// });
    /// assert_eq!(gathered, [[1, 2, 2]; 3]);
    /// ```
    #[doc(alias("MPI_Allgather", "allgatherv", "ncclAllGather", "all_gather_into_tensor"))]
    #[inline]
    pub fn all_gather<'a, T>(&mut self, buffers: impl IntoBuffers<'a, T>) -> Result<()> {
        self.issue(Collective::AllGather, buffers.into_buffers(), Op::NONE)
    }

    /// Copies block `r` of the root's input (`world * count`) into rank `r`'s output (`count`). Only
    /// the root needs an input.
    ///
    /// In place, the root's `data` is the whole (`world * count`) and does not change; the `data` of
    /// any other rank becomes its block (`count`). With counts, those of the input, rank `r` gets
    /// `counts[r]` elements.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let rows = Communicator::run_local(3, |mut comm| {
    ///     // Only the root has the table.
    ///     let table: &[u8] = if comm.rank() == 0 { b"abcdef" } else { b"" };
    ///     let mut row = [0; 2];
    ///     comm.scatter((table, &mut row), 0).unwrap();
    ///     row
    /// });
    /// assert_eq!(rows, [*b"ab", *b"cd", *b"ef"]);
    /// ```
    #[doc(alias("MPI_Scatter", "MPI_Scatterv", "scatterv", "ncclScatter"))]
    #[inline]
    pub fn scatter<'a, T>(&mut self, buffers: impl IntoBuffers<'a, T>, root: usize) -> Result<()> {
        self.issue(Collective::Scatter { root }, buffers.into_buffers(), Op::NONE)
    }

    /// Combines the inputs (`world * count`) of all ranks. Block `r` of the result goes into rank
    /// `r`'s output (`count`).
    ///
    /// In place, this rank's block of `data` (`world * count`) becomes the result; the rest does not
    /// change. With counts, those of the input, rank `r` gets `counts[r]` elements.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let blocks = Communicator::run_local(2, |mut comm| {
    ///     let (mut one, mut other) = ([0], [0, 0, 0]);
    ///     comm.reduce_scatter((&[1, 10], &mut one), ReduceOp::Sum).unwrap();
    ///     let mine = &mut other[..2 * comm.rank() + 1];
    ///     comm.reduce_scatter((&[1, 2, 3, 4], &[1, 3], mine), ReduceOp::Sum).unwrap();
    ///     (one, other)
    /// });
    /// assert_eq!(blocks, [([2], [2, 0, 0]), ([20], [4, 6, 8])]);
    /// ```
    #[doc(alias("MPI_Reduce_scatter_block", "ncclReduceScatter", "reduce_scatter_tensor"))]
    #[inline]
    pub fn reduce_scatter<'a, 'o, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        self.issue(Collective::ReduceScatter, buffers.into_buffers(), op.into_op())
    }

    /// Copies block `r` of rank `s`'s input into block `s` of rank `r`'s output, for all `r` and
    /// `s`. Both are `world * count` long. In place, `data` (`world * count`) is both, and is copied
    /// once. With counts, rank `s` sends `sent[r]` elements to rank `r`, which receives
    /// `received[s]`.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let turned = Communicator::run_local(3, |mut comm| {
    ///     let row = [0, 1, 2].map(|column| 10 * comm.rank() + column);
    ///     let mut column = [0; 3];
    ///     comm.all_to_all((&row, &mut column)).unwrap();
    ///     column
    /// });
    /// assert_eq!(turned, [[0, 10, 20], [1, 11, 21], [2, 12, 22]]);
    /// ```
    #[doc(alias("MPI_Alltoall", "alltoallv", "ncclAlltoAll", "all_to_all_single"))]
    #[inline]
    pub fn all_to_all<'a, T>(&mut self, buffers: impl IntoBuffers<'a, T>) -> Result<()> {
        self.issue(Collective::AllToAll, buffers.into_buffers(), Op::NONE)
    }

    /// Combines the inputs (`count`) of ranks 0 to this one, in rank order, into this rank's output
    /// (`count`). In place, `data` (`count`) is both. An average, whose divisor would differ from
    /// rank to rank, is refused.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let totals = Communicator::run_local(3, |mut comm| {
    ///     let mut x = [10 * (comm.rank() as i32 + 1)];
    ///     comm.scan(&mut x, ReduceOp::Sum).unwrap();
    ///     x[0]
    /// });
    /// assert_eq!(totals, [10, 30, 60]);
    /// ```
    #[doc(alias("MPI_Scan", "inclusive_scan", "prefix_sum"))]
    #[inline]
    pub fn scan<'a, 'o, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        self.issue(Collective::Scan, buffers.into_buffers(), op.into_op())
    }

    /// Combines the inputs (`count`) of the ranks before this one, in rank order, into this rank's
    /// output (`count`). Rank 0 needs no output; in place, its `data` does not change. An average is
    /// refused.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// // Where the rows of each rank begin in a file that all of them write.
    /// let starts = Communicator::run_local(3, |mut comm| {
    ///     let rows = [5, 3, 4][comm.rank()];
    ///     let mut start = [0u64];
    ///     comm.exclusive_scan((&[rows], &mut start), ReduceOp::Sum).unwrap();
    ///     start[0]
    /// });
    /// assert_eq!(starts, [0, 5, 8]);
    /// ```
    #[doc(alias("MPI_Exscan", "exscan"))]
    #[inline]
    pub fn exclusive_scan<'a, 'o, T>(
        &mut self,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        self.issue(Collective::ExclusiveScan, buffers.into_buffers(), op.into_op())
    }

    /// Makes the call of the method that `collective` names. `op` is not used by a collective that
    /// combines nothing, and `buffers` not by a barrier.
    ///
    /// ```
    /// use maypole::schedule::collective::Collective;
    /// use maypole::{AnySliceMut, Communicator, DataType, ReduceOp};
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut bytes = [1, 2, 3];
    ///     let data = AnySliceMut::new(DataType::U8, &mut bytes);
    ///     comm.call(Collective::AllReduce, data, ReduceOp::Sum).unwrap();
    ///     bytes
    /// });
    /// assert_eq!(sums, [[2, 4, 6]; 2]);
    /// ```
    pub fn call<'a, 'o, T>(
        &mut self,
        collective: Collective,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        match collective {
            Collective::Barrier => self.barrier(),
            _ => self.issue(collective, buffers.into_buffers(), op.into_op()),
        }
    }
}
