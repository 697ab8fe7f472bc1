//! Memory that other ranks reach in place.

use crate::comm::Communicator;
use crate::element::Element;
use crate::error::Result;
use maypole_transports::registered::{Arena, RegisteredBuffer};

impl Communicator {
    /// Makes a buffer of `count` zeroed elements that other ranks reach in place during a call.
    /// Collective: all ranks call it, each with its own count. To make many buffers, make an
    /// [`arena`](Self::arena) once.
    ///
    /// The buffer is a slice and an argument of every call, also in part. If all ranks of a call
    /// pass such memory and the vector is not small, ranks read their inputs and write their
    /// results in place, and no byte goes through a slot. Otherwise the call runs as with a `Vec`.
    /// Results are the same numbers, though a plan of its own may combine floats in another order,
    /// as for a vector of another length.
    ///
    /// A buffer may outlive the communicator. After a call on it has failed, no rank reaches it any
    /// more.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut gradients = comm.alloc::<f32>(100_000).unwrap();
    ///     gradients.fill(1.0 + comm.rank() as f32);
    ///     comm.all_reduce(&mut gradients, ReduceOp::Sum).unwrap();
    ///     comm.all_reduce(&mut gradients[..50_000], ReduceOp::Sum).unwrap();
    ///     (gradients[0], gradients[50_000])
    /// });
    /// assert_eq!(sums, [(6.0, 3.0); 2]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call instead; else as
    /// every call. If the system has no shared memory left, or a rank no addresses or file
    /// descriptor for it, the buffer is [private](RegisteredBuffer::is_registered) on all ranks,
    /// immediately, and that is no error; a warning of `tracing` names the limit.
    ///
    /// # Panics
    /// If `count` elements are more than an allocation can have.
    #[doc(alias("ncclMemAlloc", "ncclCommRegister", "MPI_Win_allocate_shared"))]
    pub fn alloc<T: Element>(&mut self, count: usize) -> Result<RegisteredBuffer<T>> {
        let bytes = count.saturating_mul(size_of::<T>());
        Ok(self.arena(bytes)?.alloc(count))
    }

    /// Makes an arena of `bytes` bytes, rounded up to pages, from which this rank makes buffers
    /// without any other rank. Collective: all ranks call it, each with its own length.
    ///
    /// A buffer for which the arena has no room is [private](RegisteredBuffer::is_registered). Calls
    /// take it nevertheless: if one rank passes private memory, that call runs on all ranks as with
    /// a `Vec`.
    ///
    /// The memory is shared among the ranks of this communicator. Ranks that do not all share a
    /// [board](Self::boards) have arenas without memory, so that the same program runs everywhere.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     let arena = comm.arena(1 << 20).unwrap();
    ///     let mut weights = arena.alloc::<f32>(200_000);
    ///     let mut more = arena.alloc::<f32>(200_000);
    ///     assert!(weights.is_registered() && !more.is_registered());
    ///     comm.broadcast(&mut weights, 0).unwrap();
    ///     comm.all_reduce((&weights, &mut more), ReduceOp::Sum).unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn arena(&mut self, bytes: usize) -> Result<Arena> {
        self.engine.get_mut().register(bytes)
    }
}
