//! Running user-defined schedules.

use crate::comm::Communicator;
use crate::comm::api::arguments::buffers::IntoBuffers;
use crate::comm::api::arguments::operation::IntoOp;
use crate::engine::calls::counts::CallCount;
use crate::error::Result;
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;

impl Communicator {
    /// Runs an algorithm of the user's own. `schedule(rank)` returns the schedule of each rank, and
    /// the schedules of all ranks together must implement `collective`.
    ///
    /// The call takes [`buffers`](crate::CallBuffers) as the call of that name does, in place or
    /// apart.
    ///
    /// Each call calls `schedule` for all ranks. It must return equal schedules on all of them. New
    /// schedules are proved by [`verify`](crate::schedule::verify::verify) first. Then they are
    /// lowered, overlapped and executed like those of the table of algorithms.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with the checker's words, on every rank and before
    /// anything is sent, if the schedules do not do `collective`, or not in the order that a
    /// deterministic call needs; [`Error::Mismatch`](crate::Error::Mismatch) if ranks bring
    /// different schedules; else as the call of that name.
    ///
    /// ```
    /// use maypole::schedule::collective::Collective;
    /// use maypole::schedule::{Schedule, Step, input, output};
    /// use maypole::{Communicator, ReduceOp};
    /// // Two ranks swap their vectors, and each adds what came to its own.
    /// let swap = |rank: usize| {
    ///     let other = 1 - rank;
    ///     let send = Step::Send { from: input(0), to: other };
    ///     let copy = Step::Copy { from: input(0), into: output(0) };
    ///     let add = Step::RecvReduce { into: output(0), from: other };
    ///     Schedule::new(1, vec![send, copy, add])
    /// };
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut data = vec![comm.rank() as f32 + 1.0; 100_000];
    ///     comm.run(swap, Collective::AllReduce, &mut data, ReduceOp::Sum).unwrap();
    ///     data[99_999]
    /// });
    /// assert_eq!(sums, [3.0; 2]);
    /// ```
    pub fn run<'a, 'o, T>(
        &mut self,
        schedule: impl Fn(usize) -> Schedule,
        collective: Collective,
        buffers: impl IntoBuffers<'a, T>,
        op: impl IntoOp<'o, T>,
    ) -> Result<()> {
        let buffers = buffers.into_buffers();
        let op = op.into_op().kind.used_by(collective);
        self.check_call(collective, op)?;
        self.check_slice("run", buffers.flaw())?;
        if buffers.counts != [None; 2] {
            let why = "a schedule of the user's has blocks of equal lengths";
            return Err(self.invalid("run", why.to_owned()));
        }
        let count = match collective {
            Collective::Barrier => CallCount::Even(0),
            _ => self.even_count(collective, buffers.lengths())?,
        };
        let schedules: Vec<_> = (0..self.world()).map(schedule).collect();
        let done = self.issue_counted(collective, count, buffers, op, Some(schedules));
        // The next equal call runs by an algorithm of the table again.
        self.engine.get_mut().calls.forget_current();
        done
    }
}
