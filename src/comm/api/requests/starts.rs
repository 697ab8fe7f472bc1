//! The collectives as requests: the same methods for a communicator, whose requests own their buffers, and
//! for a scope, whose requests may have borrowed them.

use crate::comm::api::arguments::operation::{IntoOp, Op};
use crate::comm::api::arguments::owned::OwnedBuffers;
use crate::comm::{Communicator, Request, Scope};
use crate::schedule::collective::Collective;

/// A method that takes buffers, then an operation and a root if there are some.
macro_rules! start {
    ($life:lifetime $name:ident $([$op:ident])? $({$root:ident})?,
     $collective:expr, $call:literal, $alias:literal) => {
        #[doc = concat!("[`", $call, "`](Communicator::", $call, ") as a request.")]
        #[doc(alias = $alias)]
        #[allow(clippy::extra_unused_lifetimes, reason = "some collectives combine nothing")]
        pub fn $name<'o, T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
            $($op: impl IntoOp<'o, T>,)?
            $($root: usize,)?
        ) -> Request<B> {
            let op = Op::<T>::into_owned(start!($($op)?));
            self.start(buffers, move |comm, buffers| {
                comm.issue($collective, buffers.buffers(), op.lend())
            })
        }
    };
    () => { Op::NONE };
    ($op:ident) => { $op.into_op() };
}

macro_rules! starts {
    ($a:lifetime) => {
        /// [`barrier`](Communicator::barrier) as a request.
        #[doc(alias = "MPI_Ibarrier")]
        pub fn start_barrier(&mut self) -> Request<()> {
            self.start((), |comm, ()| comm.barrier())
        }

        start!($a start_broadcast{root}, Collective::Broadcast { root }, "broadcast", "MPI_Ibcast");
        start!($a start_reduce[op]{root}, Collective::Reduce { root }, "reduce", "MPI_Ireduce");
        start!($a start_all_reduce[op], Collective::AllReduce, "all_reduce", "MPI_Iallreduce");
        start!($a start_gather{root}, Collective::Gather { root }, "gather", "MPI_Igatherv");
        start!($a start_all_gather, Collective::AllGather, "all_gather", "MPI_Iallgatherv");
        start!($a start_scatter{root}, Collective::Scatter { root }, "scatter", "MPI_Iscatterv");
        start!($a start_reduce_scatter[op],
               Collective::ReduceScatter, "reduce_scatter", "MPI_Ireduce_scatter");
        start!($a start_all_to_all, Collective::AllToAll, "all_to_all", "MPI_Ialltoallv");
        start!($a start_scan[op], Collective::Scan, "scan", "MPI_Iscan");
        start!($a start_exclusive_scan[op],
               Collective::ExclusiveScan, "exclusive_scan", "MPI_Iexscan");
    };
}

/// # Requests
///
/// Each of these queues the call of its name: see [`start`](Communicator::start) for the rules of
/// all requests, and [`Request::wait`] for errors. The buffers are `data`, in place, or `(input,
/// output)`: see [`OwnedBuffers`]. The request returns them in the same form. Any other call is
/// queued with [`start`](Communicator::start):
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let named = comm.start_all_reduce((vec![1.5f32; 4], [0.0; 4]), ReduceOp::Sum);
///     let both = comm.start(vec![1u64; 4], |comm, data| {
///         comm.scan(&mut *data, ReduceOp::Sum)?;
///         comm.broadcast(data, 1)
///     });
///     // ... compute something else ...
///     let (_input, output) = named.wait().unwrap();
///     (output[0], both.wait().unwrap()[0])
/// });
/// assert_eq!(sums, [(3.0, 2), (3.0, 2)]);
/// ```
impl Communicator {
    starts!('static);
}

/// # Requests
///
/// Those of [`Communicator`], on buffers that may be borrowed.
impl<'scope> Scope<'scope, '_> {
    starts!('scope);
}
