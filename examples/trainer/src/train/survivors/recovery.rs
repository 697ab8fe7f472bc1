//! Going on after a death: who is left, from which step, and with which state.

use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::ranks::shard::Shard;
use crate::tensor::math::Real;
use crate::tensor::random::fingerprint;
use crate::train::optim::Optimizer;
use crate::train::survivors::keeper::{StateKeeper, StepState};
use crate::train::survivors::newcomers::{HeldState, NEWCOMER};
use crate::train::worker::Worker;
use maypole::{Admissions, Communicator, Result};
use std::time::Duration;

/// The ranks that are left cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// All ranks are there: the cause is none that a smaller world would not have.
    #[error("all {0} ranks are there, so that there is no death to go on after")]
    NoneGone(usize),
    /// A part of the optimizer had two holders, and both have died.
    #[error(
        "ranks {first} and {second} died at once, and no other rank has rank {first}'s part of the \
         optimizer: go on from the last checkpoint, if the run has --save"
    )]
    Lost {
        /// The owner of the part, as it was numbered when the run began.
        first: usize,
        /// The rank that had the copy.
        second: usize,
    },
    /// Ranks have no step in common, or different weights after it: they have computed different
    /// things.
    #[error("ranks do not have the same state after step {step}: go on from the last checkpoint")]
    Unlike {
        /// The last step that all ranks have done.
        step: u64,
    },
    /// No rank is left that has the state: all that are there came to replace others.
    #[error(
        "no rank is left that has the weights: go on from the last checkpoint, if the run has --save"
    )]
    NoState,
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] maypole::Error),
}

/// The ranks of a run, of which some may die, and be replaced.
#[derive(Debug)]
pub struct Survivors {
    /// A communicator that nothing else uses, so that it is there when all others have failed.
    anchor: Communicator,
    /// The number that each rank had when the run began. One that replaces another has its number.
    names: Vec<usize>,
    /// This rank's.
    name: usize,
    /// Where processes come that replace ranks.
    admissions: Option<Admissions>,
    /// How many ranks the run began with.
    full: usize,
    /// Newcomers are in `anchor`, and do not have the state yet.
    grown: bool,
}

/// A worker that goes on after a death.
pub struct Recovered<T> {
    /// The rank in the smaller world.
    pub worker: Worker<T>,
    /// The ranks that have gone, as they were numbered when the run began.
    pub gone: Vec<usize>,
    /// The ranks that have come again.
    pub came: Vec<usize>,
}

impl Survivors {
    /// All ranks of `comm`, which all call this before they make workers of it.
    ///
    /// # Errors
    /// As the library's `duplicate`.
    pub fn new(comm: &mut Communicator) -> Result<Self> {
        let full = comm.world();
        let (names, name, anchor) = ((0..full).collect(), comm.rank(), comm.duplicate()?);
        Ok(Self { anchor, names, name, admissions: None, full, grown: false })
    }

    /// The same ranks, to which processes may come by `admissions` in place of those that have died.
    /// Equal on all ranks.
    #[must_use]
    pub fn replaced_by(self, admissions: Option<Admissions>) -> Self {
        Self { admissions, ..self }
    }

    /// In a process that has come in place of rank `name` of `full`: takes part in the others'
    /// [`go_on`](Self::go_on), and gets weights and optimizer from them. `comm` is the communicator
    /// by which it came.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    pub fn enter<T: Real>(
        (comm, admissions): (Communicator, Admissions),
        (name, full): (usize, usize),
        again: impl Fn(Communicator) -> Result<Worker<T>>,
    ) -> std::result::Result<(Self, Recovered<T>), RecoveryError> {
        let admissions = Some(admissions);
        let mut entered =
            Self { anchor: comm, names: Vec::new(), name, admissions, full, grown: true };
        let recovered = entered.recover(None, again)?;
        Ok((entered, recovered))
    }

    /// Lets processes come in place of ranks that have died. All ranks call it at the same step, while
    /// none is in another collective. If it returns true, all of them call [`go_on`](Self::go_on).
    /// Sends nothing while no rank is missing.
    ///
    /// # Errors
    /// As the library's `admit`.
    pub fn admit(&mut self) -> Result<bool> {
        if self.anchor.world() >= self.full {
            return Ok(false);
        }
        let Some(admissions) = &mut self.admissions else { return Ok(false) };
        if let Some(grown) = self.anchor.admit(admissions, Duration::ZERO)? {
            self.anchor = grown;
            self.grown = true;
        }
        Ok(self.grown)
    }

    /// From now on, [`admit`](Self::admit) lets nobody in and sends nothing. All ranks call this, or
    /// none.
    pub fn admit_nobody(&mut self) {
        self.admissions = None;
    }

    /// True on the first of the ranks that are left.
    pub fn leads(&self) -> bool {
        self.anchor.rank() == 0
    }

    /// The number that each rank that is left had when the run began.
    pub fn names(&self) -> &[usize] {
        &self.names
    }

    /// Goes on without the ranks that have died, and with those that have come. All that are left call
    /// this, after a collective of `worker` has failed, wherever in a step that was, or after they
    /// have [admitted](Self::admit) others. `again` makes a worker of the communicator
    /// that is left, as the first one was made. Weights, optimizer and step of the new worker are
    /// those after the last step that all ranks have done. The worker must have
    /// [kept](Worker::keep_states) its states.
    ///
    /// # Errors
    /// [`RecoveryError`].
    ///
    /// # Panics
    /// If the worker has not kept its states.
    pub fn go_on<T: Real>(
        &mut self,
        worker: Worker<T>,
        again: impl Fn(Communicator) -> Result<Worker<T>>,
    ) -> std::result::Result<Recovered<T>, RecoveryError> {
        let kept = KeptStates::of(worker)?;
        self.recover(Some(kept), again)
    }

    /// As [`go_on`](Self::go_on), of a rank that has kept states, or of one that has come.
    fn recover<T: Real>(
        &mut self,
        kept: Option<KeptStates<T>>,
        again: impl Fn(Communicator) -> Result<Worker<T>>,
    ) -> std::result::Result<Recovered<T>, RecoveryError> {
        let before = self.names.clone();
        let mut held = HeldState::of(kept);
        loop {
            let world = self.anchor.world();
            let mut stuck = false;
            if !std::mem::take(&mut self.grown) {
                self.anchor = self.anchor.shrink()?;
                stuck = self.anchor.world() == world;
            }
            let (worker, came) = match self.attempt(&mut held, (&before, stuck), &again) {
                // Another rank has died meanwhile.
                Err(RecoveryError::Collective(_)) => continue,
                attempt => attempt?,
            };
            let gone = before.iter().copied().filter(|name| !self.names.contains(name)).collect();
            return Ok(Recovered { worker, gone, came });
        }
    }

    /// Goes on with the ranks that are there now. `before`: the names of the ranks of the former world.
    /// `stuck`: this rank has found nobody gone.
    fn attempt<T: Real>(
        &mut self,
        held: &mut HeldState<T>,
        (before, stuck): (&[usize], bool),
        again: impl Fn(Communicator) -> Result<Worker<T>>,
    ) -> std::result::Result<(Worker<T>, Vec<usize>), RecoveryError> {
        let comm = &mut self.anchor;
        let told = gather(comm, &[held.place(), self.name as u64, u64::from(stuck)])?;
        let told: Vec<&[u64]> = told.chunks(3).collect();
        if told.iter().all(|rank| rank[2] == 1) {
            return Err(RecoveryError::NoneGone(told.len()));
        }
        let places: Vec<u64> = told.iter().map(|rank| rank[0]).collect();
        self.names = told.iter().map(|rank| rank[1] as usize).collect();
        let newcomers = self.names.iter().zip(&places).filter(|(_, place)| **place == NEWCOMER);
        let came = newcomers.map(|(name, _)| *name).collect();
        let whole = held.whole_state(comm, &places, before)?;
        held.whole = Some(whole.clone());
        // When a rank is past this, all of them have the whole state. So a rank that dies from here
        // on takes nothing with it.
        comm.barrier()?;
        let mut worker = again(comm.duplicate()?)?;
        whole.put(&mut worker)?;
        worker.keep_states()?;
        if let Some(keeper) = &mut worker.session.keeper {
            keeper.whole = Some(whole);
        }
        Ok((worker, came))
    }
}

/// The `numbers` of all ranks, one rank's after another's.
pub(super) fn gather(comm: &mut Communicator, numbers: &[u64]) -> Result<Vec<u64>> {
    let mut all = vec![0; numbers.len() * comm.world()];
    comm.all_gather(numbers, &mut all)?;
    Ok(all)
}

/// What a rank has of the world that it was in: one or two states, or all of one.
pub(super) struct KeptStates<T> {
    layout: ParameterLayout,
    /// This rank, and how many there were.
    pub(super) rank: usize,
    world: usize,
    /// Whether each rank has its part of the optimizer, and a copy of another.
    sharded: bool,
    /// The state before the last step that was begun, and the one after it.
    states: Vec<StepState<T>>,
    pub(super) whole: Option<StepState<T>>,
}

impl<T: Real> KeptStates<T> {
    /// Takes the states out of a worker whose collectives fail.
    fn of(worker: Worker<T>) -> Result<Self> {
        let Worker { mut session, .. } = worker;
        let StateKeeper { group, copy, before, whole, done, .. } =
            session.keeper.take().expect("the worker keeps its states");
        let layout = session.store.layout().clone();
        let sharded = !copy.first.is_empty();
        let mut states: Vec<StepState<T>> = before.into_iter().collect();
        if done {
            let weights = session.store.all_weights()?;
            let own = session.optimizer;
            let plateau = session.plateau;
            states.push(StepState { step: session.step, weights, own, copy, plateau });
        }
        let (rank, world) = (group.rank(), group.world());
        Ok(Self { layout, rank, world, sharded, states, whole })
    }

    /// The state after the last step that all ranks have done, with the whole optimizer. `members`:
    /// which ranks of the former world those of `comm` were, and `names` what they are called. `whole`:
    /// that state, if this rank has it already.
    pub(super) fn assemble(
        &self,
        comm: &mut Communicator,
        (members, names): (&[usize], &[usize]),
        whole: Option<&StepState<T>>,
    ) -> std::result::Result<StepState<T>, RecoveryError> {
        let has_whole = gather(comm, &[u64::from(whole.is_some())])?;
        if let Some(whole) = whole
            && has_whole.iter().all(|has| *has == 1)
        {
            return same(comm, whole.clone());
        }
        let last = self.states.last().map_or(0, |state| state.step);
        let step = gather(comm, &[last])?.into_iter().min().unwrap_or(0);
        let state = self.states.iter().find(|state| state.step == step);
        let missing = gather(comm, &[u64::from(state.is_none())])?;
        let Some(state) = state.filter(|_| missing.iter().all(|missing| *missing == 0)) else {
            return Err(RecoveryError::Unlike { step });
        };
        let mut whole = same(comm, state.clone())?;
        if self.sharded {
            whole.own = self.whole_optimizer(comm, state, (members, names))?;
        }
        Ok(whole)
    }

    /// All averages of the optimizer: each part comes from a rank that has it.
    fn whole_optimizer(
        &self,
        comm: &mut Communicator,
        state: &StepState<T>,
        (members, names): (&[usize], &[usize]),
    ) -> std::result::Result<Optimizer<T>, RecoveryError> {
        let mut whole = Optimizer { steps: state.own.steps, ..Optimizer::new(state.own.rule) };
        whole.reserve(self.layout.len());
        for owner in 0..self.world {
            let keeper = (owner + 1) % self.world;
            let holder = |rank: usize| members.iter().position(|member| *member == rank);
            let (root, held) = match (holder(owner), holder(keeper)) {
                (Some(root), _) => (root, &state.own),
                (None, Some(root)) => (root, &state.copy),
                (None, None) => {
                    let (first, second) = (names[owner], names[keeper]);
                    return Err(RecoveryError::Lost { first, second });
                }
            };
            let part = Shards::new(&self.layout, Shard { index: owner, of: self.world });
            for (averages, all) in
                [(&held.first, &mut whole.first), (&held.second, &mut whole.second)]
            {
                let mut numbers = vec![T::zero(); part.len()];
                if comm.rank() == root {
                    numbers.copy_from_slice(averages);
                }
                comm.broadcast(&mut numbers, root)?;
                for (unit, place) in part.mine.iter().enumerate() {
                    all[place.clone()].copy_from_slice(&numbers[part.packed(unit)]);
                }
            }
        }
        Ok(whole)
    }
}

/// Refuses states of different steps or with different weights.
pub(super) fn same<T: Real>(
    comm: &mut Communicator,
    state: StepState<T>,
) -> std::result::Result<StepState<T>, RecoveryError> {
    let weights = fingerprint(state.weights.iter().map(|weight| weight.wide().to_bits()));
    let all = gather(comm, &[state.step, weights])?;
    if all.chunks(2).all(|own| own == &all[..2]) {
        Ok(state)
    } else {
        Err(RecoveryError::Unlike { step: state.step })
    }
}

impl<T: Real> StepState<T> {
    /// Gives a worker this state, in which the optimizer is that of all parameters. Collective.
    fn put(&self, worker: &mut Worker<T>) -> Result<()> {
        let session = &mut worker.session;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for run in &mut session.store.owned() {
            let place = run.offset..run.offset + run.weights.len();
            run.weights.copy_from_slice(&self.weights[place.clone()]);
            if !self.own.first.is_empty() {
                first.extend_from_slice(&self.own.first[place.clone()]);
                second.extend_from_slice(&self.own.second[place]);
            }
        }
        session.store.share()?;
        session.optimizer.steps = self.own.steps;
        session.optimizer.first = first;
        session.optimizer.second = second;
        session.step = self.step;
        session.plateau = self.plateau;
        Ok(())
    }
}
