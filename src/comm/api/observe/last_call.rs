//! How the last collective ran.

use crate::comm::Communicator;
use crate::engine::calls::report::LastCall;

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
