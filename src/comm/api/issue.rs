//! The one path from the arguments of a collective to the engine. Which buffers a rank needs, and
//! their lengths, follows from the [`Collective`].

use crate::comm::Communicator;
use crate::comm::api::arguments::buffers::CallBuffers;
use crate::comm::api::arguments::operation::{Op, OpKind};
use crate::comm::api::arguments::slices::SliceFlaw;
use crate::element::{DataType, ReduceOp};
use crate::engine::calls::call::{CollectiveCall, ReadyCall, used_parts};
use crate::engine::calls::counts::{BufferLengths, CallCount};
use crate::error::{Error, Result};
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Makes one call. Inlined, because most of it follows from the collective, which is a constant
    /// where it is called.
    #[inline(always)]
    pub(crate) fn issue<T>(
        &mut self,
        collective: Collective,
        buffers: CallBuffers<'_, T>,
        op: Op<'_, T>,
    ) -> Result<()> {
        let op = op.kind.used_by(collective);
        self.check_call(collective, op)?;
        self.check_slice(collective.name(), buffers.flaw())?;
        let kind = buffers.output.kind;
        let count = match buffers.counts {
            [None, None] => self.even_count(collective, buffers.lengths())?,
            counts => self.given_count(collective, buffers.lengths(), counts)?,
        };
        match buffers.plain() {
            Some((input, output)) => {
                let mut ready = self.ready(collective, (kind, count), op, input, output)?;
                (ready.call.stands_for, ready.call.lanes) = (buffers.stands_for, buffers.lanes);
                self.run_ready(ready, op, None)
            }
            None => self.issue_counted(collective, count, buffers, op, None),
        }
    }

    /// Makes a call of `count` elements, also on `bool`s, whose arguments were checked.
    #[inline(never)]
    pub(super) fn issue_counted<T>(
        &mut self,
        collective: Collective,
        count: CallCount,
        buffers: CallBuffers<'_, T>,
        op: OpKind<'_>,
        schedules: Option<Vec<Schedule>>,
    ) -> Result<()> {
        let (kind, stands_for, lanes) = (buffers.output.kind, buffers.stands_for, buffers.lanes);
        buffers.lend(|input, output| {
            let mut ready = self.ready(collective, (kind, count), op, input, output)?;
            (ready.call.stands_for, ready.call.lanes) = (stands_for, lanes);
            self.run_ready(ready, op, schedules)
        })
    }

    /// Refuses a root or an operation that the collective does not have.
    #[inline(always)]
    pub(crate) fn check_call(&self, collective: Collective, op: OpKind<'_>) -> Result<()> {
        if let Some(root) = collective.root() {
            self.check_root(collective.name(), root)?;
        }
        match (collective, op) {
            (Collective::Scan | Collective::ExclusiveScan, OpKind::BuiltIn(ReduceOp::Avg)) => {
                let why = "an average of running totals means nothing; take the sum";
                Err(self.invalid(collective.name(), why.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses bytes that are no elements.
    #[inline(always)]
    pub(super) fn check_slice(
        &self,
        operation: &'static str,
        flaw: Option<SliceFlaw>,
    ) -> Result<()> {
        flaw.map_or(Ok(()), |flaw| Err(self.unsuitable(operation, flaw)))
    }

    #[cold]
    fn unsuitable(&self, operation: &'static str, flaw: SliceFlaw) -> Error {
        self.invalid(operation, flaw.to_string())
    }

    /// The count, equal on all ranks.
    #[inline(always)]
    pub(crate) fn even_count(
        &self,
        collective: Collective,
        lengths: BufferLengths,
    ) -> Result<CallCount> {
        match lengths.count(collective, self.rank(), self.world()) {
            Ok(count) => Ok(CallCount::Even(count)),
            Err(why) => Err(self.invalid(collective.name(), why)),
        }
    }

    /// The call, and what of its buffers it uses on this rank. In place there is no `input`.
    #[inline(always)]
    pub(super) fn ready<'a>(
        &self,
        collective: Collective,
        (kind, count): (DataType, CallCount),
        op: OpKind<'_>,
        input: Option<View<'a>>,
        output: ViewMut<'a>,
    ) -> Result<ReadyCall<'a>> {
        let held = (collective.input(self.rank()), collective.output(self.rank()));
        let own_block = |whole| self.own_block(whole);
        let (input, output, in_place) =
            used_parts(held, input, output, |whole| whole.as_view(), own_block);
        let engine = self.engine.get();
        let operands = (kind, count);
        let reduction = op.reduction();
        let call = CollectiveCall::new(&engine.settings, collective, operands, reduction, in_place);
        let ready = ReadyCall {
            call,
            scaling: None,
            input: input.unwrap_or(View::EMPTY),
            output: output.unwrap_or(ViewMut::EMPTY),
        };
        match op {
            OpKind::BuiltIn(op @ (ReduceOp::Avg | ReduceOp::PreMulSum(_))) => {
                let (call, scaling) = call.scaled(op, (self.rank(), self.world()))?;
                Ok(ReadyCall { call, scaling, ..ready })
            }
            _ => Ok(ready),
        }
    }

    /// Runs a call, by the user's `schedules` if there are some.
    #[inline(always)]
    pub(super) fn run_ready(
        &mut self,
        ready: ReadyCall<'_>,
        op: OpKind<'_>,
        schedules: Option<Vec<Schedule>>,
    ) -> Result<()> {
        let averages_integers = ready.call.averages_integers() && self.world() > 1;
        let engine = self.engine.get_mut();
        if averages_integers {
            return engine.average_integers(ready, schedules);
        }
        if let Some(schedules) = schedules {
            engine.make_current_by(ready.call, &schedules)?;
        }
        match op {
            OpKind::BuiltIn(_) => engine.perform(ready),
            OpKind::User(function) => engine.call_custom(ready, &function.reducer),
        }
    }

    #[inline(always)]
    fn own_block<'a>(&self, whole: ViewMut<'a>) -> ViewMut<'a> {
        let bytes = whole.len() / self.world();
        whole.slice(self.rank() * bytes, bytes)
    }

    #[inline(always)]
    pub(crate) fn check_root(&self, operation: &'static str, root: usize) -> Result<()> {
        if root < self.world() { Ok(()) } else { Err(self.no_root(operation, root)) }
    }

    #[cold]
    fn no_root(&self, operation: &'static str, root: usize) -> Error {
        self.invalid(operation, format!("root {root} is not one of the {} ranks", self.world()))
    }

    #[cold]
    pub(crate) fn invalid(&self, operation: &'static str, why: String) -> Error {
        Error::Invalid { rank: self.rank(), operation, why }
    }
}
