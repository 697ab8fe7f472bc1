//! From a call to a program that runs: choose an algorithm, lower its schedules once, connect the
//! ranks, execute.
//!
//! | part | content |
//! |---|---|
//! | [`PreparedCalls`] | the calls that have programs, and which one was made last |
//! | [`CallSettings`] | the user's settings: plan, determinism, memory |
//! | [`TimeLimits`] | timeout and deadlines |
//! | [`Health`] | the control plane, the first failure, operations so far |
//! | [`RunConditions`] | costs, crowding, and how this rank waits |
//! | [`Recorder`] | the trace of calls |
//! | [`WayChoices`] | how the bytes of long calls move |

pub(crate) mod agree;
mod average;
pub(crate) mod calls;
pub(crate) mod conditions;
mod connect;
#[cfg(feature = "cuda")]
pub(crate) mod device;
mod failure;
mod groups;
pub(crate) mod health;
pub(crate) mod limits;
mod registered;
pub(crate) mod settings;
pub(crate) mod ways;

use crate::control::Control;
use crate::engine::calls::call::{CollectiveCall, ReadyCall};
use crate::engine::calls::choice::PlanChooser;
use crate::engine::calls::kept::PreparedCalls;
use crate::engine::calls::prepared::{PreparedCall, ProgramKey, ProgramSource, WayKind};
use crate::engine::calls::report::Counters;
use crate::engine::conditions::RunConditions;
use crate::engine::health::{Health, check_process};
use crate::engine::limits::TimeLimits;
use crate::engine::registered::Registrations;
use crate::engine::settings::CallSettings;
use crate::engine::ways::WayChoices;
use crate::error::Result;
use crate::execute::record::{Recorder, record_call};
use crate::execute::{ExecuteError, Executor, StoreWay};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, Hosts};
use crate::tuner::{DeviceQuestion, Explanation};
use maypole_kernels::{CustomReducer, Reducer};
use maypole_transports::{OwnerProcess, Waiting};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Runs the calls of one rank of a group.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) rank: usize,
    pub(crate) boards: Boards,
    pub(crate) conditions: RunConditions,
    pub(crate) settings: CallSettings,
    pub(crate) limits: TimeLimits,
    pub(crate) health: Health,
    pub(crate) calls: PreparedCalls,
    registrations: Registrations,
    ways: WayChoices<WayKind>,
    /// While calls are recorded for a trace. The fast path has no extra cost: see
    /// [`PreparedCalls`].
    pub(crate) recorder: Option<Box<Recorder>>,
    executor: Executor,
    /// True once the executor has the board, or needs none.
    connected: bool,
    /// Groups that were split off so far. Equal on all ranks, so that it numbers the groups.
    pub(crate) splits: u64,
}

impl Engine {
    /// The engine of a rank that is this process. In a forked child, every call returns
    /// [`Error::Forked`](crate::Error::Forked).
    pub(crate) fn new(
        rank: usize,
        boards: Boards,
        control: Arc<dyn Control>,
        conditions: RunConditions,
    ) -> Self {
        let waiting = conditions.waiting;
        Self {
            rank,
            limits: TimeLimits::new(waiting.timeout()),
            executor: Executor::new(rank, waiting, control.alarm(), Arc::clone(&control) as _),
            health: Health::new(rank, OwnerProcess::current(), control),
            calls: PreparedCalls::default(),
            registrations: Registrations::default(),
            ways: WayChoices::default(),
            connected: boards.locals(rank).len() == 1,
            boards,
            conditions,
            settings: CallSettings::default(),
            recorder: None,
            splits: 0,
        }
    }

    /// Changes the timeout of calls, and the wait policy of this rank accordingly.
    pub(crate) fn change_limits(&mut self, change: impl FnOnce(&mut TimeLimits)) {
        change(&mut self.limits);
        self.health.activity.set_background(self.limits.background);
        self.executor.waiting = self.waiting();
    }

    /// How this rank waits now.
    pub(crate) fn waiting(&self) -> Waiting {
        self.limits.waiting(self.conditions.waiting)
    }

    /// Runs one call that combines by the user's `operation`.
    pub(crate) fn call_custom(
        &mut self,
        ready: ReadyCall<'_>,
        operation: &CustomReducer,
    ) -> Result<()> {
        self.make_current(ready.call)?;
        let reducer = &mut self.calls.current_mut().reducer;
        let before = std::mem::replace(reducer, Reducer::Custom(operation.clone()));
        // After a panic the communicator has failed, so nothing is used again that the panic left
        // half done.
        let done = catch_unwind(AssertUnwindSafe(|| self.perform(ready)));
        // The program outlives the call, but the user's function need not.
        self.calls.current_mut().reducer = before;
        done.unwrap_or_else(|panic| {
            self.health.panicked(&ready.call.to_string(), &*panic);
            resume_unwind(panic)
        })
    }

    #[inline(always)]
    pub(crate) fn perform(&mut self, ready: ReadyCall<'_>) -> Result<()> {
        let is_fast = self.calls.is_fast(ready.call, self.settings.plan);
        if !is_fast || self.health.is_troubled() || !self.health.owner.is_current() {
            return self.perform_slow(ready);
        }
        self.health.enter();
        let prepared = self.calls.current();
        let buffers = self.calls.buffers(ready);
        let done = self.executor.run(&prepared.staged.program, &prepared.reducer, &buffers);
        self.finish(ready, done)
    }

    #[cold]
    #[inline(never)]
    fn perform_slow(&mut self, ready: ReadyCall<'_>) -> Result<()> {
        let call = ready.call;
        self.check_usable(|| call.to_string())?;
        self.make_current(call)?;
        if self.settings.checked {
            let record = Arc::clone(&self.calls.current().record);
            self.check_call(&record)?;
        }
        let store = self.calls.current().store;
        match self.calls.current().ways {
            Some(_) => self.perform_choosing(ready),
            None => self.perform_staged(ready, store),
        }
    }

    /// Runs the current call through streams and slots, whose stores are of kind `store`.
    fn perform_staged(&mut self, ready: ReadyCall<'_>, store: Option<StoreWay>) -> Result<()> {
        let sequence = self.health.sequence;
        self.health.enter();
        let PreparedCall { staged, reducer, .. } = self.calls.current();
        let buffers = self.calls.buffers(ready);
        let (executor, recorder) = (&mut self.executor, self.recorder.as_deref_mut());
        let done = record_call(recorder, (sequence, staged.notes.as_ref()), |observer| {
            executor.run_stored(store, &staged.program, reducer, &buffers, observer)
        });
        self.finish(ready, done)
    }

    /// Ends the current call, whose program has ended.
    #[inline(always)]
    fn finish(
        &mut self,
        ready: ReadyCall<'_>,
        done: std::result::Result<(), Box<ExecuteError>>,
    ) -> Result<()> {
        if let Err(failure) = done {
            return Err(self.explain_program(ready.call, *failure));
        }
        self.health.exit();
        self.calls.current().staged.runs.update(|runs| runs + 1);
        Ok(())
    }

    /// Makes `call` the current one, if it is not.
    #[inline]
    fn make_current(&mut self, call: CollectiveCall) -> Result<()> {
        check_process(self.health.owner, self.rank)?;
        if self.calls.is_current(call, self.settings.plan) {
            return Ok(());
        }
        self.look_up(call)
    }

    /// Makes `call` the current one. Prepares it if it is new.
    #[cold]
    #[inline(never)]
    fn look_up(&mut self, call: CollectiveCall) -> Result<()> {
        self.check_usable(|| call.to_string())?;
        let source = ProgramSource::Table(self.settings.plan);
        self.use_program(ProgramKey { call, source }, |it| it.prepare(call))
    }

    /// Makes the call of `key` the current one. Calls `prepare` if it is new.
    fn use_program(
        &mut self,
        key: ProgramKey,
        prepare: impl FnOnce(&mut Self) -> Result<usize>,
    ) -> Result<()> {
        let at = self.calls.find(key).map_or_else(|| prepare(self), Ok)?;
        let is_observed = self.recorder.is_some() || self.settings.checked;
        self.calls.select(at, self.settings.plan, is_observed);
        self.health.record(&self.calls.current().record);
        Ok(())
    }

    pub(crate) fn chooser(&self) -> PlanChooser<'_> {
        self.chooser_of(&self.boards, &self.conditions, None)
    }

    /// Chooses plans of this engine's calls on other `boards` and under other `conditions`.
    fn chooser_of<'a>(
        &'a self,
        boards: &'a Boards,
        conditions: &'a RunConditions,
        gpus: Option<DeviceQuestion<'a>>,
    ) -> PlanChooser<'a> {
        let (settings, counts) = (&self.settings, &self.calls.counts);
        let (rank, chosen) = (self.rank, &self.calls.chosen);
        PlanChooser { rank, boards, conditions, settings, counts, chosen, gpus }
    }

    /// Explains the plan of a call of `bytes` bytes in all.
    pub(crate) fn explain(
        &self,
        collective: Collective,
        bytes: usize,
        hosts: &Hosts,
    ) -> Explanation {
        self.chooser().explain(collective, bytes, hosts, self.registrations.copies.objection())
    }

    /// What collectives have moved.
    pub(crate) fn counters(&self) -> Counters {
        let stores = self.executor.store_counts();
        Counters { stores, ..self.calls.counters() }
    }

    /// Leaves the group in order, after all sent bytes. May be called again. A `patient` rank
    /// thereby detects whether its calls match those of the others.
    pub(crate) fn leave(&mut self, patient: bool) {
        self.executor.streams().finish();
        if self.health.has_failed() {
            self.executor.streams().abandon();
        }
        self.health.control.leave(self.health.sequence, patient);
    }
}
