//! The five collectives that training loops run in the background, as requests: the same methods
//! for a communicator, which takes buffers that own their elements, and for a scope, which takes
//! borrowed buffers as well. Every other call is queued with `start`.
//!
//! A buffer is any type that lends its elements with [`AsMut`] (an input that is only read: with
//! [`AsRef`]): a `Vec`, a boxed slice, an array, within a scope a slice.

use crate::comm::{Communicator, Request, Scope};
use crate::element::{Element, ReduceOp};

macro_rules! starts {
    ($life:lifetime) => {
        /// [`broadcast`](Communicator::broadcast) as a request.
        pub fn start_broadcast<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            root: usize,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.broadcast(data.as_mut(), root))
        }

        /// [`all_reduce`](Communicator::all_reduce) as a request.
        pub fn start_all_reduce<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.all_reduce(data.as_mut(), op))
        }

        /// [`all_gather`](Communicator::all_gather) as a request.
        pub fn start_all_gather<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.all_gather(input.as_ref(), output.as_mut())
            })
        }

        /// [`reduce_scatter`](Communicator::reduce_scatter) as a request.
        pub fn start_reduce_scatter<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            op: ReduceOp,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.reduce_scatter(input.as_ref(), output.as_mut(), op)
            })
        }

        /// [`all_to_all`](Communicator::all_to_all) as a request.
        pub fn start_all_to_all<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.all_to_all(input.as_ref(), output.as_mut())
            })
        }
    };
}

/// # Requests
///
/// Each of these queues the call of its name: see [`start`](Communicator::start) for what is common
/// to all requests, and [`Request::wait`] for errors. The request gives the buffers back as they
/// were given; two of them as a pair. Any other call is queued with [`start`](Communicator::start):
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let named = comm.start_all_reduce(vec![1.5f32; 4], ReduceOp::Sum);
///     let scan = comm.start(vec![1u64; 4], |comm, data| comm.scan(data, ReduceOp::Sum));
///     // ... compute something else ...
///     (named.wait().unwrap()[0], scan.wait().unwrap()[0])
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
