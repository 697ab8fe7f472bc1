//! Every collective as a request: the same names for a communicator, which takes buffers that own
//! their elements, and for a scope, which takes borrowed ones as well.
//!
//! A buffer is whatever lends its elements: a `Vec`, a boxed slice, an array, within a scope a
//! slice, or a type of the user's with [`AsMut`] (what is only read: [`AsRef`]).

use crate::comm::element::{Element, ReduceOp};
use crate::comm::{Communicator, Operation, Request, Scope};

macro_rules! starts {
    ($life:lifetime) => {
        /// [`barrier`](Communicator::barrier): the request is over once every rank's has had its
        /// turn.
        pub fn start_barrier(&mut self) -> Request<()> {
            self.start((), |comm, ()| comm.barrier())
        }

        /// [`broadcast`](Communicator::broadcast) as a request.
        pub fn start_broadcast<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            root: usize,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.broadcast(data.as_mut(), root))
        }

        /// [`reduce`](Communicator::reduce) as a request.
        pub fn start_reduce<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
            root: usize,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.reduce(data.as_mut(), op, root))
        }

        /// [`reduce_with`](Communicator::reduce_with) as a request.
        pub fn start_reduce_with<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: &Operation<T>,
            root: usize,
        ) -> Request<B> {
            let op = op.clone();
            self.start(data, move |comm, data| comm.reduce_with(data.as_mut(), &op, root))
        }

        /// [`reduce_into`](Communicator::reduce_into) as a request.
        pub fn start_reduce_into<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            op: ReduceOp,
            root: usize,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.reduce_into(input.as_ref(), output.as_mut(), op, root)
            })
        }

        /// [`all_reduce`](Communicator::all_reduce) as a request.
        pub fn start_all_reduce<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.all_reduce(data.as_mut(), op))
        }

        /// [`all_reduce_with`](Communicator::all_reduce_with) as a request.
        pub fn start_all_reduce_with<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: &Operation<T>,
        ) -> Request<B> {
            let op = op.clone();
            self.start(data, move |comm, data| comm.all_reduce_with(data.as_mut(), &op))
        }

        /// [`all_reduce_into`](Communicator::all_reduce_into) as a request.
        pub fn start_all_reduce_into<
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
                comm.all_reduce_into(input.as_ref(), output.as_mut(), op)
            })
        }

        /// [`gather`](Communicator::gather) as a request.
        pub fn start_gather<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            root: usize,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.gather(input.as_ref(), output.as_mut(), root)
            })
        }

        /// [`gather_in_place`](Communicator::gather_in_place) as a request.
        pub fn start_gather_in_place<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            root: usize,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.gather_in_place(data.as_mut(), root))
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

        /// [`all_gather_in_place`](Communicator::all_gather_in_place) as a request.
        pub fn start_all_gather_in_place<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.all_gather_in_place(data.as_mut()))
        }

        /// [`scatter`](Communicator::scatter) as a request.
        pub fn start_scatter<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            root: usize,
        ) -> Request<(A, B)> {
            self.start((input, output), move |comm, (input, output)| {
                comm.scatter(input.as_ref(), output.as_mut(), root)
            })
        }

        /// [`scatter_in_place`](Communicator::scatter_in_place) as a request.
        pub fn start_scatter_in_place<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            root: usize,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.scatter_in_place(data.as_mut(), root))
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

        /// [`reduce_scatter_with`](Communicator::reduce_scatter_with) as a request.
        pub fn start_reduce_scatter_with<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            op: &Operation<T>,
        ) -> Request<(A, B)> {
            let op = op.clone();
            self.start((input, output), move |comm, (input, output)| {
                comm.reduce_scatter_with(input.as_ref(), output.as_mut(), &op)
            })
        }

        /// [`reduce_scatter_in_place`](Communicator::reduce_scatter_in_place) as a request.
        pub fn start_reduce_scatter_in_place<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.reduce_scatter_in_place(data.as_mut(), op))
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

        /// [`all_to_all_in_place`](Communicator::all_to_all_in_place) as a request.
        pub fn start_all_to_all_in_place<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.all_to_all_in_place(data.as_mut()))
        }

        /// [`scan`](Communicator::scan) as a request.
        pub fn start_scan<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.scan(data.as_mut(), op))
        }

        /// [`exclusive_scan`](Communicator::exclusive_scan) as a request.
        pub fn start_exclusive_scan<T: Element, B: AsMut<[T]> + Send + $life>(
            &mut self,
            data: B,
            op: ReduceOp,
        ) -> Request<B> {
            self.start(data, move |comm, data| comm.exclusive_scan(data.as_mut(), op))
        }

        /// [`all_gather_v`](Communicator::all_gather_v) as a request.
        pub fn start_all_gather_v<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            counts: &[usize],
        ) -> Request<(A, B)> {
            let counts = counts.to_vec();
            self.start((input, output), move |comm, (input, output)| {
                comm.all_gather_v(input.as_ref(), output.as_mut(), &counts)
            })
        }

        /// [`reduce_scatter_v`](Communicator::reduce_scatter_v) as a request.
        pub fn start_reduce_scatter_v<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            counts: &[usize],
            op: ReduceOp,
        ) -> Request<(A, B)> {
            let counts = counts.to_vec();
            self.start((input, output), move |comm, (input, output)| {
                comm.reduce_scatter_v(input.as_ref(), output.as_mut(), &counts, op)
            })
        }

        /// [`gather_v`](Communicator::gather_v) as a request.
        pub fn start_gather_v<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            counts: &[usize],
            root: usize,
        ) -> Request<(A, B)> {
            let counts = counts.to_vec();
            self.start((input, output), move |comm, (input, output)| {
                comm.gather_v(input.as_ref(), output.as_mut(), &counts, root)
            })
        }

        /// [`scatter_v`](Communicator::scatter_v) as a request.
        pub fn start_scatter_v<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            counts: &[usize],
            root: usize,
        ) -> Request<(A, B)> {
            let counts = counts.to_vec();
            self.start((input, output), move |comm, (input, output)| {
                comm.scatter_v(input.as_ref(), &counts, output.as_mut(), root)
            })
        }

        /// [`all_to_all_v`](Communicator::all_to_all_v) as a request.
        pub fn start_all_to_all_v<
            T: Element,
            A: AsRef<[T]> + Send + $life,
            B: AsMut<[T]> + Send + $life,
        >(
            &mut self,
            input: A,
            output: B,
            send_counts: &[usize],
            receive_counts: &[usize],
        ) -> Request<(A, B)> {
            let (send_counts, receive_counts) = (send_counts.to_vec(), receive_counts.to_vec());
            self.start((input, output), move |comm, (input, output)| {
                comm.all_to_all_v(input.as_ref(), &send_counts, output.as_mut(), &receive_counts)
            })
        }
    };
}

/// # Requests
///
/// Each of these is the call of its name, queued: see [`start`](Communicator::start) for what is
/// common to all, and [`Request::wait`] for errors. Buffers come back as they were given; two of
/// them as a pair.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let request = comm.start_all_reduce(vec![1.5f32; 4], ReduceOp::Sum);
///     // ... compute something else ...
///     request.wait().unwrap()
/// });
/// assert_eq!(sums, [[3.0; 4]; 2]);
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
