//! Calls that are described once and started often.

use crate::comm::{Communicator, Request};
use crate::error::Result;
use std::fmt;

/// A call with its buffers, which can be started repeatedly: see [`Communicator::prepare`].
pub struct PersistentCall<B> {
    /// The buffers of the call: inputs are written here before a start, results are read here
    /// afterwards.
    pub buffers: B,
    call: CallOnBuffers<B>,
}

type CallOnBuffers<B> = Box<dyn FnMut(&mut Communicator, &mut B) -> Result<()> + Send>;

impl<B: Send + 'static> PersistentCall<B> {
    /// Starts the call as a request, which gives this back: see [`Communicator::start`]. Until then
    /// the buffers are inaccessible.
    pub fn start(self, comm: &mut Communicator) -> Request<Self> {
        comm.start(self, |comm, prepared| prepared.run(comm))
    }

    /// Makes the call, and waits for it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn run(&mut self, comm: &mut Communicator) -> Result<()> {
        (self.call)(comm, &mut self.buffers)
    }
}

impl<B> fmt::Debug for PersistentCall<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentCall").finish_non_exhaustive()
    }
}

impl Communicator {
    /// Describes `call` on `buffers` once, so that it can be started again and again, as MPI's
    /// persistent requests. Does not communicate: the first start chooses the algorithm and makes
    /// the connections, and the communicator caches them for the later ones.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let call = |comm: &mut Communicator, x: &mut Vec<u64>| comm.all_reduce(x, ReduceOp::Sum);
    ///     let mut sum = comm.prepare(vec![0; 1000], call);
    ///     for step in 1..=3 {
    ///         sum.buffers.fill(step);
    ///         let request = sum.start(&mut comm);
    ///         // ... compute something else ...
    ///         sum = request.wait().unwrap();
    ///     }
    ///     sum.buffers[0]
    /// });
    /// assert_eq!(sums, [6, 6]);
    /// ```
    #[doc(alias("MPI_Allreduce_init", "MPI_Start"))]
    pub fn prepare<B: Send + 'static>(
        &self,
        buffers: B,
        call: impl FnMut(&mut Self, &mut B) -> Result<()> + Send + 'static,
    ) -> PersistentCall<B> {
        PersistentCall { buffers, call: Box::new(call) }
    }
}
