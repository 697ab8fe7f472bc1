//! What a rank has of the world that it was in, and the state on which the ranks that are left agree.

use crate::survivors::keeper::{StateKeeper, StepState};
use maypole::{Communicator, Result};
use maypole_trainer::data_parallel::shards::Shards;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::random::fingerprint;
use maypole_trainer::train::optim::Optimizer;
use maypole_trainer::train::trainer::Trainer;
use std::any::Any;

/// The surviving ranks cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// All ranks are alive: a smaller world would fail for the same cause.
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
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] maypole::Error),
}

/// The `numbers` of all ranks, one rank's after another's.
pub(super) fn gather(comm: &mut Communicator, numbers: &[u64]) -> Result<Vec<u64>> {
    let mut all = vec![0; numbers.len() * comm.world()];
    comm.all_gather((numbers, &mut all))?;
    Ok(all)
}

/// The states of a rank from the world before: one or two, and later the one on which all ranks have
/// agreed.
pub(super) struct KeptStates<T> {
    layout: ParameterLayout,
    /// This rank, and how many there were.
    pub(super) rank: usize,
    world: usize,
    /// Whether each rank has its part of the optimizer, and a copy of another.
    sharded: bool,
    /// The state before the last step that was begun, and the one after it.
    states: Vec<StepState<T>>,
    /// The state on which all ranks have agreed, with the whole optimizer; `None` before.
    pub(super) whole: Option<StepState<T>>,
}

impl<T: Real> KeptStates<T> {
    /// Takes the states out of a trainer whose collectives fail.
    pub(super) fn of(trainer: Trainer<T>) -> Result<Self> {
        let Trainer { mut parts, step, .. } = trainer;
        let update: Box<dyn Any> = parts.update;
        let keeper = update.downcast().expect("the trainer keeps its states");
        let StateKeeper { group, own, copy, before, whole, .. } = *keeper;
        let layout = parts.store.layout().clone();
        let sharded = !copy.first.is_empty();
        // Whether the trainer's state is that after a step, and not in the middle of an update.
        let done = before.as_ref().is_none_or(|before| before.step < step);
        let mut states: Vec<StepState<T>> = before.into_iter().collect();
        if done {
            let weights = parts.store.all_weights()?;
            states.push(StepState { step, weights, own, copy });
        }
        let (rank, world) = (group.rank(), group.world());
        Ok(Self { layout, rank, world, sharded, states, whole })
    }

    /// The state after the last step that all ranks have done, with the whole optimizer. `members`:
    /// the ranks of `comm` in the former world, and `names` the names of all of that world.
    pub(super) fn assemble(
        &self,
        comm: &mut Communicator,
        (members, names): (&[usize], &[usize]),
    ) -> std::result::Result<StepState<T>, RecoveryError> {
        let has_whole = gather(comm, &[u64::from(self.whole.is_some())])?;
        if let Some(whole) = &self.whole
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

    /// All averages of the optimizer. A rank that has a part broadcasts it.
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
fn same<T: Real>(
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
