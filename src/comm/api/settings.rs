//! Settings of the calls that follow: algorithm, order of combination, time limits.

use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::engine::limits::TimeLimits;
use crate::tuner::{CostTable, Plan, PlanOverride};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A communicator whose calls share a deadline: see [`Communicator::within`].
#[derive(Debug)]
pub struct Within<'a>(&'a mut Communicator);

impl Communicator {
    /// Names the algorithm of the calls that follow; `None` leaves the choice to the tuner. All
    /// ranks must name the same one, or their calls do not match.
    ///
    /// ```
    /// use maypole::{Algorithm, Communicator, Error, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.set_algorithm(Some(Algorithm::Ring));
    ///     comm.all_reduce(&mut [1.0f32; 100], ReduceOp::Sum).unwrap();
    ///     let error = comm.scatter((&[1u8, 2], &mut [0]), 0).unwrap_err();
    ///     assert!(matches!(error, Error::Unsupported { algorithm: Algorithm::Ring, .. }));
    ///     comm.set_algorithm(None);
    ///     comm.scatter((&[1u8, 2], &mut [0]), 0).unwrap();
    /// });
    /// ```
    pub fn set_algorithm(&mut self, algorithm: Option<Algorithm>) {
        let plan = algorithm.map(PlanOverride::from);
        self.engine.change(move |engine| engine.settings.plan = plan);
    }

    /// Names the algorithm and the window of the calls that follow, for measurements. Otherwise as
    /// [`set_algorithm`](Self::set_algorithm).
    pub fn set_plan(&mut self, plan: Option<Plan>) {
        let plan = plan.map(PlanOverride::from);
        self.engine.change(move |engine| engine.settings.plan = plan);
    }

    /// Prices the calls that follow by other costs than those of rank 0's table: to compare tables. All
    /// ranks must set the same, or their calls do not match. Groups that are split off later inherit it.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp, tuner::CostTable};
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.set_costs(CostTable { switch: 0, ..CostTable::BUILT_IN });
    ///     comm.all_reduce(&mut [1f32; 9], ReduceOp::Sum).unwrap();
    ///     assert_eq!(comm.costs().switch, 0);
    /// });
    /// ```
    pub fn set_costs(&mut self, costs: CostTable) {
        self.engine.change(move |engine| engine.set_costs(costs));
    }

    /// Sets whether the calls that follow are *deterministic*: each element of a reduction is
    /// `((x0 op x1) op x2) op ... x(n-1)`, the plain loop over the ranks, for every number of
    /// elements, transport, set of hosts and version. All ranks must set the same, or their calls
    /// do not match. The default is that of `MAYPOLE_DETERMINISTIC`, or false. Groups that are
    /// split off later inherit the setting.
    ///
    /// Without it, results are the same on every run and on all ranks too, but depend on which
    /// algorithm the tuner chooses: see [the contract](crate::element#determinism), which also has
    /// the cost.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(4, |mut comm| {
    ///     comm.set_deterministic(true);
    ///     let mut x = [[1e8f32, 1.0, -1e8, 1.0][comm.rank()]; 1000];
    ///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    ///     x[0]
    /// });
    /// assert_eq!(sums, [((1e8 + 1.0) + -1e8) + 1.0; 4]);
    /// ```
    pub fn set_deterministic(&mut self, deterministic: bool) {
        self.engine.change(move |engine| engine.settings.deterministic = deterministic);
    }

    /// True if reductions are the plain loop over the ranks.
    pub fn is_deterministic(&self) -> bool {
        self.engine.get().settings.deterministic
    }

    /// Says whether all ranks compare their calls *before* each collective that follows, so that the
    /// first call that does not match fails on every rank, and nothing has been sent. All ranks must
    /// set the same. The default is that of `MAYPOLE_CHECK`, or false. Groups that are split off
    /// later inherit the setting.
    ///
    /// For finding mistakes: each call costs an exchange over the control plane, some hundred
    /// microseconds. Without it, a mismatch is found while the call runs or in a later call, and
    /// ranks whose part was done by then have returned `Ok`.
    ///
    /// ```
    /// use maypole::{Communicator, Error};
    /// let errors = Communicator::run_local(2, |mut comm| {
    ///     comm.set_checked(true);
    ///     // Two ranks that are both the root: neither waits for the other.
    ///     let root = comm.rank();
    ///     comm.broadcast(&mut [0u8], root).unwrap_err()
    /// });
    /// assert!(errors.iter().all(|error| matches!(error, Error::Mismatch { .. })));
    /// ```
    pub fn set_checked(&mut self, checked: bool) {
        self.engine.change(move |engine| {
            engine.settings.checked = checked;
            // The fast path compares nothing.
            engine.calls.forget_current();
        });
    }

    /// How long a wait for a peer may last before the call fails. The default is
    /// `MAYPOLE_TIMEOUT`, or 300 s.
    pub fn timeout(&self) -> Duration {
        self.engine.timeout
    }

    /// Changes [`timeout`](Self::timeout) for the calls and requests that follow, on this rank
    /// alone.
    ///
    /// ```
    /// use maypole::Communicator;
    /// use std::time::Duration;
    /// let mut comm = Communicator::from_env()?;
    /// comm.set_timeout(Duration::from_secs(20));
    /// assert_eq!(comm.timeout().as_secs(), 20);
    /// # Ok::<(), maypole::Error>(())
    /// ```
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.engine.set_timeout(timeout);
    }

    /// Returns a guard. All calls through the guard share one deadline: they must be done
    /// `duration` from now, with any number of waits, and for any [`timeout`](Self::timeout). The
    /// time of a request begins when it reaches the head of the queue.
    ///
    /// A call that misses the deadline fails this communicator on all its ranks, as every call does
    /// that does not end in time. If it was [split](Self::split) off or [duplicated](Self::duplicate),
    /// it fails alone: its parent and all other groups work as before, and the same split makes it
    /// again. If it is that of the whole world, all groups fail with it, and the ranks
    /// [continue](Self::shrink) with a new communicator. So a call that may be tried again is made in
    /// a duplicate. To look whether something has come, without failing:
    /// [`Request::test`](crate::Request::test).
    ///
    /// ```
    /// use maypole::{Communicator, Error, ReduceOp};
    /// use std::time::Duration;
    /// // Two ranks; only one of them calls.
    /// let mut comms = Communicator::local(2);
    /// let soon = Duration::from_millis(20);
    /// let error = comms[0].within(soon).all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
    /// let Error::TimedOut { cause, .. } = error else { panic!("{error}") };
    /// assert_eq!((cause.peer, cause.after), (Some(1), soon));
    /// ```
    ///
    /// Trying again:
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// use std::time::Duration;
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     let mut attempt = comm.duplicate()?;
    ///     if comm.rank() == 0 {
    ///         // Rank 1 does not come.
    ///         assert!(attempt.within(Duration::from_millis(20)).barrier().is_err());
    ///     }
    ///     comm.barrier()?; // works as before
    ///     attempt = comm.duplicate()?;
    ///     let mut one = [1];
    ///     attempt.all_reduce(&mut one, ReduceOp::Sum)?;
    ///     Ok::<_, maypole::Error>(one[0])
    /// });
    /// assert_eq!(sums.into_iter().collect::<maypole::Result<Vec<_>>>()?, [2, 2]);
    /// # Ok::<(), maypole::Error>(())
    /// ```
    pub fn within(&mut self, duration: Duration) -> Within<'_> {
        self.engine.change(move |engine| engine.change_limits(|limits| limits.open(duration)));
        Within(self)
    }
}

impl Deref for Within<'_> {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        self.0
    }
}

impl DerefMut for Within<'_> {
    fn deref_mut(&mut self) -> &mut Communicator {
        self.0
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.0.engine.change(|engine| engine.change_limits(TimeLimits::close));
    }
}
