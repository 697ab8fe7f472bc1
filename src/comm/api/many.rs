//! Many small buffers in few calls.

use crate::comm::Communicator;
use crate::comm::api::arguments::buffers::IntoBuffers;
use crate::comm::api::arguments::operation::{IntoOp, Op};
use crate::element::Element;
use crate::error::Result;
use crate::schedule::collective::Collective;

/// Bytes up to which neighbours are joined. A call of more bytes costs so much time that two calls cost
/// hardly more, and the copies would.
const JOINED: usize = 256 << 10;

impl Communicator {
    /// [`all_reduce`](Self::all_reduce) of every buffer in place, in as few calls as that is worth:
    /// neighbours are copied together until they have 256 KiB. The buffers have the same lengths in the
    /// same order on every rank.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut gradients = vec![vec![1.0f32; 3], vec![], vec![0.5; 2]];
    ///     comm.all_reduce_many(&mut gradients, ReduceOp::Sum).unwrap();
    ///     assert_eq!(comm.counters().calls["all_reduce"], 1);
    ///     gradients
    /// });
    /// assert_eq!(sums, [[vec![2.0; 3], vec![], vec![1.0; 2]], [vec![2.0; 3], vec![], vec![1.0; 2]]]);
    /// ```
    ///
    /// # Errors
    /// Those of an all-reduce; [`Error::Mismatch`](crate::Error::Mismatch) also where the lengths
    /// differ and their sums do not. Buffers before the call that failed are reduced, later ones unchanged.
    #[doc(alias = "all_reduce_coalesced")]
    pub fn all_reduce_many<'o, T: Element, B: AsMut<[T]>>(
        &mut self,
        buffers: &mut [B],
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        let op = op.into_op().into_owned();
        let mut joined: Vec<T> = Vec::new();
        let mut rest = buffers;
        while let Some(count) = neighbours::<T, B>(rest) {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(count);
            rest = later;
            if let [alone] = now {
                self.all_reduce(alone.as_mut(), op.lend())?;
                continue;
            }
            joined.clear();
            now.iter_mut().for_each(|buffer| joined.extend_from_slice(buffer.as_mut()));
            let lengths = now.iter_mut().map(|buffer| buffer.as_mut().len()).collect();
            let count = self.engine.get_mut().intern_joined(lengths);
            let op: Op<'_, T> = op.lend();
            let buffers = (&mut joined).into_buffers();
            self.issue_counted(Collective::AllReduce, count, buffers, op.kind)?;
            let mut from = &joined[..];
            for buffer in now.iter_mut().map(AsMut::as_mut) {
                let (mine, others) = from.split_at(buffer.len());
                buffer.copy_from_slice(mine);
                from = others;
            }
        }
        Ok(())
    }
}

/// How many of the first `buffers` are joined; `None` if there are none. Equal on all ranks, because
/// lengths are.
fn neighbours<T, B: AsMut<[T]>>(buffers: &mut [B]) -> Option<usize> {
    let mut bytes = 0;
    let fits = |buffer: &mut B| {
        bytes += size_of_val::<[T]>(buffer.as_mut());
        bytes <= JOINED
    };
    let fitting = buffers.iter_mut().map(fits).take_while(|fits| *fits).count();
    (!buffers.is_empty()).then_some(fitting.max(1))
}
