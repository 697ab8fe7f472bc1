//! The programs that a communicator keeps for calls that are repeated.

use crate::comm::Communicator;
use crate::engine::calls::report::ProgramCache;

impl Communicator {
    /// How many programs this communicator has made for its calls, and how many it keeps.
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

    /// Sets how many bytes the programs that are kept may take, on this rank alone. The default is
    /// that of `MAYPOLE_PROGRAM_MEMORY`, or 8 MiB. Groups that are split off later inherit it, and
    /// each has a budget of its own.
    ///
    /// A program takes about a kilobyte among a few ranks, and more among many. Before a program
    /// is added, those that were not used for the longest time are dropped until all of them keep
    /// to the budget. One program is kept in any case. Working memory, which all programs share, is
    /// as large as the most demanding program that is kept, and does not count.
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
        self.engine.change(move |engine| engine.settings_mut().limit_programs(Some(bytes)));
    }
}
