//! Observations of calls: bytes moved, the run of the last one, the cached programs, and the status of a rank.
//!
//! A call only counts the runs of its program. The bytes of one run follow from the program, so
//! [`Communicator::counters`] computes the bytes when it is called.

use crate::comm::Communicator;
use crate::engine::calls::prepared::PreparedCall;
use crate::engine::calls::report::{Counters, LastCall, ProgramCache};
use crate::status::RankStatus;

impl Communicator {
    /// The calls of this rank on this communicator, and the bytes that it sent for them. Groups
    /// count their own calls. Waits for requests in flight. Counting costs a call next to nothing.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp, algorithms::Algorithm};
    /// let sent = Communicator::run_local(4, |mut comm| {
    ///     comm.set_algorithm(Some(Algorithm::Ring));
    ///     let before = comm.counters().payload();
    ///     comm.all_reduce(&mut [1f32; 1000], ReduceOp::Sum).unwrap();
    ///     let after = comm.counters();
    ///     assert_eq!(after.calls["all_reduce"], 1);
    ///     after.payload() - before
    /// });
    /// // 2 (p-1)/p of 4000 bytes.
    /// assert_eq!(sent, [6000; 4]);
    /// ```
    pub fn counters(&self) -> Counters {
        let mut counters = self.engine.get().counters();
        let driven = self.engine.messages.drive();
        driven.links.sent().for_each(|sent| counters.messages += sent);
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
        self.engine.get().calls.last().map(PreparedCall::last)
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
        let engine = self.engine.get();
        engine.calls.cache(engine.settings.program_memory())
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
        self.engine.change(move |engine| engine.settings.program_limit = Some(bytes));
    }

    /// Returns the status of this rank in all of its groups: its operation and the rank that it
    /// waits for, the last 1000 calls, and the observations of the control plane. Does not wait for
    /// requests in flight, and sends nothing to other ranks. In a forked child the status only
    /// contains that the communicator was created before the fork.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let said = Communicator::run_local(2, |mut comm| {
    ///     for _ in 0..5 {
    ///         comm.all_reduce(&mut [1.0f32; 8], ReduceOp::Sum).unwrap();
    ///     }
    ///     comm.barrier().unwrap();
    ///     let status = comm.status();
    ///     let world = &status.groups[0];
    ///     assert_eq!((world.completed, world.pending.is_none()), (6, true));
    ///     assert_eq!((world.recent[0].first, world.recent[0].count), (0, 5));
    ///     status.to_string()
    /// });
    /// assert!(said[0].contains("outside the library after 6 operations, the last of them barrier()"));
    /// ```
    ///
    /// A program that must know the awaited rank while it waits starts the call as a request:
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let mut comms = Communicator::local(2);
    /// // Rank 1 never calls.
    /// let request = comms[0].start_all_reduce(vec![1.0f32; 8], ReduceOp::Sum);
    /// let awaited = loop {
    ///     let status = comms[0].status();
    ///     if let Some(pending) = &status.groups[0].pending
    ///         && let Some(rank) = pending.awaits
    ///     {
    ///         break rank;
    ///     }
    /// };
    /// assert_eq!(awaited, 1);
    /// # drop((comms.remove(1), request));
    /// ```
    pub fn status(&self) -> RankStatus {
        match self.engine.is_forked() {
            false => self.engine.messages.control.status(),
            true => {
                let failure = Some("the communicator was created before fork".to_owned());
                let here = (self.rank(), self.world());
                RankStatus { failure, ..RankStatus::of(here, &[], false, None) }
            }
        }
    }
}
