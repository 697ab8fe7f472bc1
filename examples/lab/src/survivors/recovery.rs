//! Recovery from a death: the surviving ranks, the step, and the state.

use crate::survivors::keeper::{StepState, keep_states};
use crate::survivors::kept::{KeptStates, RecoveryError, gather};
use maypole::{Communicator, Result};
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::checkpoint::load::Progress;
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;

/// The ranks of a run, of which some may die.
#[derive(Debug)]
pub struct Survivors {
    /// A communicator without other users, so that it is usable when all others have failed.
    anchor: Communicator,
    /// The number that each rank had when the run began.
    names: Vec<usize>,
    /// This rank's.
    name: usize,
}

/// A trainer that continues after a death.
pub struct Recovered<T> {
    /// The rank in the smaller world.
    pub trainer: Trainer<T>,
    /// The ranks that have gone, as they were numbered when the run began.
    pub gone: Vec<usize>,
}

impl Survivors {
    /// All ranks of `comm`, which all call this before they make trainers of it.
    ///
    /// # Errors
    /// As the library's `duplicate`.
    pub fn new(comm: &mut Communicator) -> Result<Self> {
        let names = (0..comm.world()).collect();
        Ok(Self { names, name: comm.rank(), anchor: comm.duplicate()? })
    }

    /// The number that each rank that is left had when the run began.
    pub fn names(&self) -> &[usize] {
        &self.names
    }

    /// Goes on without the ranks that have died. All that are left call this, after a collective of
    /// `trainer` has failed, wherever in a step that was. `again` makes a trainer of the communicator
    /// that is left, as the first one was made. Weights, optimizer and step of the new trainer are
    /// those after the last step that all ranks have done. The trainer must have
    /// [kept](keep_states) its states.
    ///
    /// # Errors
    /// [`RecoveryError`].
    ///
    /// # Panics
    /// If the trainer has not kept its states.
    pub fn go_on<T: Real>(
        &mut self,
        trainer: Trainer<T>,
        again: impl Fn(Communicator) -> Result<Trainer<T>>,
    ) -> std::result::Result<Recovered<T>, RecoveryError> {
        let mut kept = KeptStates::of(trainer)?;
        let before = self.names.clone();
        loop {
            let world = self.anchor.world();
            self.anchor = self.anchor.shrink()?;
            let stuck = self.anchor.world() == world;
            let trainer = match self.attempt(&mut kept, (&before, stuck), &again) {
                // Another rank has died meanwhile.
                Err(RecoveryError::Collective(_)) => continue,
                attempt => attempt?,
            };
            let gone = before.iter().copied().filter(|name| !self.names.contains(name)).collect();
            return Ok(Recovered { trainer, gone });
        }
    }

    /// Continues with the present ranks. `before`: the names of the ranks of the former world. `stuck`:
    /// this rank has found no dead rank.
    fn attempt<T: Real>(
        &mut self,
        kept: &mut KeptStates<T>,
        (before, stuck): (&[usize], bool),
        again: impl Fn(Communicator) -> Result<Trainer<T>>,
    ) -> std::result::Result<Trainer<T>, RecoveryError> {
        let comm = &mut self.anchor;
        let told = gather(comm, &[kept.rank as u64, self.name as u64, u64::from(stuck)])?;
        let told: Vec<&[u64]> = told.chunks(3).collect();
        if told.iter().all(|rank| rank[2] == 1) {
            return Err(RecoveryError::NoneGone(told.len()));
        }
        let members: Vec<usize> = told.iter().map(|rank| rank[0] as usize).collect();
        self.names = told.iter().map(|rank| rank[1] as usize).collect();
        let whole = kept.assemble(comm, (&members, before))?;
        kept.whole = Some(whole.clone());
        // When a rank is past this, all of them have the whole state. So a rank that dies from here
        // on takes nothing with it.
        comm.barrier()?;
        let mut trainer = again(comm.duplicate()?)?;
        whole.put(&mut trainer)?;
        keep_states(&mut trainer, Some(whole))?;
        Ok(trainer)
    }
}

impl<T: Real> StepState<T> {
    /// Gives a trainer this state, in which the optimizer is that of all parameters. Collective.
    fn put(&self, trainer: &mut Trainer<T>) -> Result<()> {
        let owned = trainer.parts.store.local_shards();
        let runs = owned.iter().map(|run| run.offset..run.offset + run.weights.len());
        let runs: Vec<_> = runs.collect();
        let part = |whole: &[T]| -> Vec<T> {
            let of = |run: &Range<usize>| whole.get(run.clone()).unwrap_or_default();
            runs.iter().flat_map(of).copied().collect()
        };
        let Self { step, own, .. } = self;
        let numbers = [part(&self.weights), part(&own.first), part(&own.second)];
        let progress = Progress { step: *step, updates: own.steps };
        trainer.go_on_from(progress, numbers)
    }
}
