//! How the last collective ran.

use crate::comm::Communicator;

/// How a collective ran: see [`Communicator::last_call`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LastCall {
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// How ranks that share a board got at each other's bytes.
    pub path: CallPath,
}

/// How ranks that share a board got at each other's bytes in a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum CallPath {
    /// Through the slots of the board: a byte is copied into a slot, and out of it. Bytes to ranks
    /// of other boards go through streams.
    #[default]
    Staged,
    /// In [registered](Communicator::alloc) memory, where they lie.
    Registered,
    /// From private memory to private memory, by the kernel: large calls that only move bytes, among
    /// processes that may read one another's memory.
    Copied,
}

impl CallPath {
    /// Returns the name that `maypole perf` writes: `staged`, `registered` or `copied`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Registered => "registered",
            Self::Copied => "copied",
        }
    }
}

impl Communicator {
    /// How the last collective of this rank ran. `None` if there was none, or if something else
    /// than a collective came after it, such as a split. Waits for requests in flight.
    ///
    /// For measurements: the algorithm on registered memory may be another one than that which
    /// [`algorithm`](Self::algorithm) tells.
    ///
    /// ```
    /// use maypole::{CallPath, Communicator, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.all_reduce(&mut vec![1f32; 1 << 18], ReduceOp::Sum).unwrap();
    ///     assert_eq!(comm.last_call().unwrap().path, CallPath::Staged);
    ///     let mut registered = comm.alloc::<f32>(1 << 18).unwrap();
    ///     comm.all_reduce(&mut registered, ReduceOp::Sum).unwrap();
    ///     assert_eq!(comm.last_call().unwrap().path, CallPath::Registered);
    /// });
    /// ```
    pub fn last_call(&self) -> Option<LastCall> {
        self.engine.get().last_call()
    }
}
