//! The five collectives that training loops run in the background, as requests: the same methods
//! for a communicator, whose requests own their buffers, and for a scope, whose requests may have
//! borrowed them. Every other call is queued with `start`.

use crate::comm::api::arguments::buffers::OwnedBuffers;
use crate::comm::api::arguments::operation::{IntoOp, Op};
use crate::comm::{Communicator, Request, Scope};
use crate::schedule::collective::Collective;

macro_rules! starts {
    ($life:lifetime) => {
        /// [`broadcast`](Communicator::broadcast) as a request.
        pub fn start_broadcast<T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
            root: usize,
        ) -> Request<B> {
            self.start_call(Collective::Broadcast { root }, buffers, Op::NONE)
        }

        /// [`all_reduce`](Communicator::all_reduce) as a request.
        pub fn start_all_reduce<'o, T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
            op: impl IntoOp<'o, T>,
        ) -> Request<B> {
            self.start_call(Collective::AllReduce, buffers, op.into_op())
        }

        /// [`all_gather`](Communicator::all_gather) as a request.
        pub fn start_all_gather<T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
        ) -> Request<B> {
            self.start_call(Collective::AllGather, buffers, Op::NONE)
        }

        /// [`reduce_scatter`](Communicator::reduce_scatter) as a request.
        pub fn start_reduce_scatter<'o, T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
            op: impl IntoOp<'o, T>,
        ) -> Request<B> {
            self.start_call(Collective::ReduceScatter, buffers, op.into_op())
        }

        /// [`all_to_all`](Communicator::all_to_all) as a request.
        pub fn start_all_to_all<T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            buffers: B,
        ) -> Request<B> {
            self.start_call(Collective::AllToAll, buffers, Op::NONE)
        }

        fn start_call<T, F, B: OwnedBuffers<T, F> + Send + $life>(
            &mut self,
            collective: Collective,
            buffers: B,
            op: Op<'_, T>,
        ) -> Request<B> {
            let op = op.into_owned();
            self.start(buffers, move |comm, buffers| {
                comm.issue(collective, buffers.buffers(), op.lend())
            })
        }
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
///     let scan = comm.start(vec![1u64; 4], |comm, data| comm.scan(data, ReduceOp::Sum));
///     // ... compute something else ...
///     let (_input, output) = named.wait().unwrap();
///     (output[0], scan.wait().unwrap()[0])
/// });
/// assert_eq!(sums, [(3.0, 1), (3.0, 2)]);
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
