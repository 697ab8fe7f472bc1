//! How much a communicator has moved so far.
//!
//! A call only counts the runs of its program. The bytes of one run follow from the program, so
//! [`Communicator::counters`] computes the bytes when it is called.

use crate::comm::Communicator;
use crate::engine::calls::report::Counters;

impl Communicator {
    /// The calls of this rank on this communicator, and the bytes that it sent for them. Groups
    /// count their own calls. Waits for requests in flight. Counting costs a call next to nothing.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp, algorithms::Algorithm};
    /// let sent = Communicator::run_local(4, |mut comm| {
    ///     comm.set_algorithm(Some(Algorithm::Ring));
    ///     let before = comm.counters();
    ///     comm.all_reduce(&mut [1f32; 1000], ReduceOp::Sum).unwrap();
    ///     let during = comm.counters().since(&before);
    ///     assert_eq!(during.calls["all_reduce"], 1);
    ///     during.payload()
    /// });
    /// // 2 (p-1)/p of 4000 bytes.
    /// assert_eq!(sent, [6000; 4]);
    /// ```
    pub fn counters(&self) -> Counters {
        let mut counters = self.engine.get().counters();
        for (peer, sent) in self.engine.messages.sent() {
            counters.messages += sent;
            counters.peers[peer].messages += sent.payload;
        }
        counters
    }
}
