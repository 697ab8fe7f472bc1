//! Running schedules that the user brings.

use crate::comm::Communicator;
use crate::element::{Element, Loan, ReduceOp, lend};
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::CallCount;
use crate::error::Result;
use crate::schedule::Schedule;
use crate::schedule::collective::{Collective, HeldChunks};
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Runs an algorithm of the user's own. `schedule(rank)` returns the schedule of each rank, and
    /// the schedules of all ranks together must implement `collective`.
    ///
    /// The call works in place, as the call of that name does. `data` is the vector. If the
    /// collective has blocks, `data` is the whole on ranks that bring or keep the whole, and one
    /// block on other ranks.
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
    pub fn run<T: Element>(
        &mut self,
        schedule: impl Fn(usize) -> Schedule,
        collective: Collective,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        let (brings, keeps) = self.holds(collective);
        let has_blocks =
            collective.is_blocked() && (brings == HeldChunks::All || keeps == HeldChunks::All);
        let count = if has_blocks { self.block_count("run", data.len())? } else { data.len() };
        let mut loan = lend(data);
        let whole = loan.view();
        let block = if has_blocks { self.blocks(whole).1 } else { whole };
        let part = |held| match held {
            HeldChunks::All => whole,
            HeldChunks::One(_) => block,
            HeldChunks::Nothing => ViewMut::EMPTY,
        };
        let in_place = brings != HeldChunks::Nothing && keeps != HeldChunks::Nothing;
        self.run_schedules::<T>(
            &schedule,
            collective,
            op,
            (count, in_place),
            part(brings).as_view(),
            part(keeps),
        )
    }

    /// [`run`](Self::run) from `input` to `output`. Each buffer is as long as `collective` needs on
    /// this rank. A buffer that `collective` does not use here is not touched and may be empty.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Invalid`](crate::Error::Invalid) if the lengths
    /// contradict one another.
    pub fn run_into<T: Element>(
        &mut self,
        schedule: impl Fn(usize) -> Schedule,
        collective: Collective,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        let (brings, keeps) = self.holds(collective);
        let (held, len) = if keeps == HeldChunks::Nothing {
            (brings, input.len())
        } else {
            (keeps, output.len())
        };
        let blocks = |held| {
            if collective.is_blocked() && held == HeldChunks::All { self.world() } else { 1 }
        };
        let count = len / blocks(held);
        if brings != HeldChunks::Nothing {
            self.check_len("run", "input", input.len(), count * blocks(brings))?;
        }
        if keeps != HeldChunks::Nothing {
            self.check_len("run", "output", output.len(), count * blocks(keeps))?;
        }
        let input = if brings == HeldChunks::Nothing { View::EMPTY } else { View::of(input) };
        let mut loan = (keeps != HeldChunks::Nothing).then(|| lend(output));
        let output = loan.as_mut().map_or(ViewMut::EMPTY, Loan::view);
        self.run_schedules::<T>(&schedule, collective, op, (count, false), input, output)
    }

    /// The chunks of this rank's input, and those of its output.
    fn holds(&self, collective: Collective) -> (HeldChunks, HeldChunks) {
        (collective.input(self.rank()), collective.output(self.rank()))
    }

    fn run_schedules<T: Element>(
        &mut self,
        schedule: &dyn Fn(usize) -> Schedule,
        collective: Collective,
        op: ReduceOp,
        (count, in_place): (usize, bool),
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        if matches!(collective, Collective::Scan | Collective::ExclusiveScan) {
            self.check_scan("run", op)?;
        }
        let count = if collective == Collective::Barrier { 0 } else { count };
        let in_place = in_place && !matches!(op, ReduceOp::PreMulSum(_));
        let call = CollectiveCall {
            collective,
            kind: T::DATA_TYPE,
            op: op.into(),
            count: CallCount::Even(count),
            deterministic: self.engine.get().settings().is_deterministic_for(collective),
            in_place,
        };
        let schedules: Vec<_> = (0..self.world()).map(schedule).collect();
        self.engine.get_mut().make_current_by(call, schedules)?;
        let done = self.run_call(call, op, input, output);
        // The next equal call runs by an algorithm of the table again.
        self.engine.get_mut().forget_current();
        done
    }
}
