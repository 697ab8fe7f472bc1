//! Observations of calls: bytes moved, the run of the last one, and the cached programs.
//!
//! A call only counts the runs of its program. The bytes of one run follow from the program, so
//! [`Communicator::counters`] computes the bytes when it is called.

use crate::comm::Communicator;
use crate::engine::calls::report::{Counters, LastCall, ProgramCache};

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
        self.engine.messages.sent().into_iter().for_each(|sent| counters.messages += sent);
        counters
    }

    /// How the last collective of this rank ran. `None` if there was none, or if something else
    /// than a collective came after it, such as a split. Waits for requests in flight.
    ///
    /// For measurements: the algorithm on registered memory may differ from
    /// [`algorithm`](Self::algorithm).
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

    /// The numbers of programs that this communicator has lowered for its calls, and that its cache
    /// holds.
    ///
    /// The first call of its kind (collective, type, operation, counts, algorithm, in place or not)
    /// makes a program, which takes far longer than running it. Later calls of that kind only run
    /// it. If `evicted` grows in a loop whose calls repeat, the budget is too small for the loop:
    /// see [`set_program_memory`](Self::set_program_memory). Waits for requests in flight.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     for length in [10, 20, 10, 20] {
    ///         comm.all_reduce(&mut vec![1.0f32; length], ReduceOp::Sum).unwrap();
    ///     }
    ///     let programs = comm.programs();
    ///     assert_eq!((programs.lowered, programs.kept, programs.evicted), (2, 2, 0));
    /// });
    /// ```
    pub fn programs(&self) -> ProgramCache {
        self.engine.get().program_cache()
    }

    /// Sets the size limit of the program cache in bytes, on this rank alone. The default is that
    /// of `MAYPOLE_PROGRAM_MEMORY`, or 8 MiB. Groups that are split off later inherit it, and each
    /// has a budget of its own.
    ///
    /// A program takes about a kilobyte among a few ranks, and more among many. Before a program is
    /// added, those that were not used for the longest time are dropped until all of them keep to
    /// the budget. One program is cached in any case. Working memory, which all programs share, is
    /// as large as the most demanding cached program needs, and does not count.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.set_program_memory(20_000);
    ///     for length in 1..200 {
    ///         comm.all_reduce(&mut vec![1.0f32; length], ReduceOp::Sum).unwrap();
    ///     }
    ///     let programs = comm.programs();
    ///     assert!(programs.bytes <= 20_000 && programs.evicted > 100);
    /// });
    /// ```
    pub fn set_program_memory(&mut self, bytes: usize) {
        self.engine.change(move |engine| engine.settings_mut().program_limit = Some(bytes));
    }
}
