//! Schedules that the user brings.

use crate::comm::Communicator;
use crate::comm::element::{Element, Loan, ReduceOp, lend};
use crate::comm::engine::Engine;
use crate::comm::engine::call::{Call, mix};
use crate::comm::engine::choice::Means;
use crate::comm::engine::counts::Count;
use crate::comm::engine::order::lack_of_order_in;
use crate::comm::error::Result;
use crate::schedule::collective::{Collective, HeldChunks};
use crate::schedule::verify::{Proof, verify};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step};
use maypole_kernels::{View, ViewMut};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a window, at most: what a slot of a board holds.
const WINDOW: usize = 32 << 10;
/// Different schedules that are remembered.
const MOST: usize = 64;

impl Communicator {
    /// Runs an algorithm of the user's own: `schedule(rank)` is what each rank does, and together
    /// they must do `collective`. Takes the place of the call of that name in place: `data` is the
    /// vector; of collectives of blocks it is the whole on ranks that bring or keep the whole, and
    /// a block on others.
    ///
    /// `schedule` is called for all ranks, each time, and must give equal answers on all of them.
    /// What it gives is proved by [`verify`] when it is new; then it is lowered, overlapped and
    /// executed like the algorithms of the table.
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
    ///     let (send, copy) =
    ///         (Step::Send { from: input(0), to: 1 - rank }, Step::Copy { from: input(0), into: output(0) });
    ///     Schedule::new(1, vec![send, copy, Step::RecvReduce { into: output(0), from: 1 - rank }])
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
        self.run_own::<T>(
            &schedule,
            collective,
            op,
            (count, in_place),
            part(brings).as_view(),
            part(keeps),
        )
    }

    /// [`run`](Self::run) from `input` to `output`, each as long as this rank's part in
    /// `collective` asks; what it has no part in is not touched and may be empty.
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
        self.run_own::<T>(&schedule, collective, op, (count, false), input, output)
    }

    /// What this rank brings and what it keeps.
    fn holds(&self, collective: Collective) -> (HeldChunks, HeldChunks) {
        (collective.input(self.rank()), collective.output(self.rank()))
    }

    fn run_own<T: Element>(
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
        let (kind, count, deterministic) =
            (T::DATA_TYPE, Count::Even(count), self.engine.deterministic(collective));
        let call = Call { collective, kind, op: op.into(), count, deterministic, in_place };
        let schedules: Vec<_> = (0..self.world()).map(schedule).collect();
        self.engine.make_current_by(call, schedules)?;
        let done = match op {
            ReduceOp::PreMulSum(factor) => self.engine.call_scaled(call, factor, input, output),
            _ => self.engine.call(call, input, output),
        };
        // An equal call by the table's choice is another one.
        self.engine.forget_current();
        done
    }
}

/// What is known of schedules that were proved.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Their content, condensed: others have the same only by a freak of chance.
    content: u64,
    proof: Proof,
}

/// Schedules of the user's own that were proved, and the calls that were made ready by them.
#[derive(Debug, Default)]
pub(crate) struct Own {
    proved: HashMap<(Collective, Arc<[Schedule]>), Known>,
    /// Places in the engine's list.
    ready: HashMap<(Call, u64), usize>,
}

impl Engine {
    /// Makes `call` by these schedules the current one; proves and lowers them if they are new.
    fn make_current_by(&mut self, call: Call, schedules: Vec<Schedule>) -> Result<()> {
        self.check()?;
        self.check_operation(call)?;
        let schedules = Arc::from(schedules);
        let Known { content, proof } = self.prove(call, &schedules)?;
        if let Some(lack) = lack_of_order_in(proof, call) {
            return Err(self.invalid(call, format!("the user's algorithm {lack}")));
        }
        let known = self.own.ready.get(&(call, content)).copied();
        // The list is begun anew now and then.
        let known = known.filter(|at| {
            self.ready.get(*at).is_some_and(|ready| (ready.call, ready.own) == (call, content))
        });
        let at = match known {
            Some(at) => at,
            None => {
                let fingerprint = call.fingerprint_by(content, WINDOW, self.world, &self.given);
                let means = Means { name: "own", window: WINDOW, fingerprint };
                let at = self.prepare_by(call, &schedules, means)?;
                self.ready[at].own = content;
                self.own.ready.insert((call, content), at);
                at
            }
        };
        self.ready[at].wanted = self.wanted;
        self.set_current(at);
        self.control
            .record(self.sequence, format!("{call} by the user's schedule {:08x}", content >> 32));
        Ok(())
    }

    fn prove(&mut self, call: Call, schedules: &Arc<[Schedule]>) -> Result<Known> {
        let key = (call.collective, Arc::clone(schedules));
        if let Some(known) = self.own.proved.get(&key) {
            return Ok(*known);
        }
        // What is right apart is right in place: lowering puts aside what would be overwritten too
        // early.
        let proof = verify(call.collective, schedules, Placement::Apart).map_err(|flaw| {
            self.invalid(call, format!("the schedules do something else: {flaw}"))
        })?;
        if self.own.proved.len() >= MOST {
            self.own = Own::default();
        }
        let known = Known { content: content(schedules), proof };
        self.own.proved.insert(key, known);
        Ok(known)
    }
}

/// All steps of all ranks, condensed; the same in every process. Never zero.
fn content(schedules: &[Schedule]) -> u64 {
    let span = |span: Span| {
        let buffer = match span.buffer {
            Buffer::Input => 0,
            Buffer::Output => 1,
            Buffer::Scratch => 2,
        };
        mix(buffer ^ mix(span.chunk as u64))
    };
    let step = |step: &Step| match *step {
        Step::Send { from, to } => [1, span(from), to as u64],
        Step::Recv { into, from } => [2, span(into), from as u64],
        Step::RecvReduce { into, from } => [3, span(into), from as u64],
        Step::Copy { from, into } => [4, span(from), span(into)],
        Step::Reduce { from, into } => [5, span(from), span(into)],
    };
    let words = schedules.iter().flat_map(|schedule| {
        let sizes = [schedule.chunks as u64, schedule.scratch as u64, schedule.steps.len() as u64];
        sizes.into_iter().chain(schedule.steps.iter().flat_map(step))
    });
    words.fold(schedules.len() as u64, |hash, word| mix(hash ^ word).wrapping_add(word)) | 1
}
