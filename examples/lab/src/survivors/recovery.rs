//! Recovery from a death: the surviving ranks, the step, and the state.

use crate::survivors::keeper::{StepState, keep_states};
use crate::survivors::kept::{KeptStates, RecoveryError, gather};
use crate::survivors::newcomers::{HeldState, NEWCOMER};
use maypole::{Admissions, Communicator, Result};
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::checkpoint::load::Progress;
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;
use std::time::Duration;

/// The ranks of a run, of which some may die, and be replaced.
#[derive(Debug)]
pub struct Survivors {
    /// A communicator without other users, so that it is usable when all others have failed.
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

/// A trainer that continues after a death.
pub struct Recovered<T> {
    /// The rank in the smaller world.
    pub trainer: Trainer<T>,
    /// The ranks that have gone, as they were numbered when the run began.
    pub gone: Vec<usize>,
    /// The ranks that have come again.
    pub came: Vec<usize>,
}

impl Survivors {
    /// All ranks of `comm`, which all call this before they make trainers of it.
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

    /// In a process that replaces rank `name` of `full`: the counterpart of the others'
    /// [`go_on`](Self::go_on), from which it receives weights and optimizer. `comm` is the communicator
    /// of its join.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    pub fn enter<T: Real>(
        (comm, admissions): (Communicator, Admissions),
        (name, full): (usize, usize),
        again: impl Fn(Communicator) -> Result<Trainer<T>>,
    ) -> std::result::Result<(Self, Recovered<T>), RecoveryError> {
        let admissions = Some(admissions);
        let mut entered =
            Self { anchor: comm, names: Vec::new(), name, admissions, full, grown: true };
        let recovered = entered.recover(None, again)?;
        Ok((entered, recovered))
    }

    /// Admits replacements of dead ranks. All ranks call it at the same step, while none is in another
    /// collective. If it returns true, all of them call [`go_on`](Self::go_on). Sends nothing while no
    /// rank is missing.
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

    /// From now on, [`admit`](Self::admit) admits no process and sends nothing. All ranks call this,
    /// or none.
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
    /// this, after a collective of `trainer` has failed, wherever in a step that was, or after they
    /// have [admitted](Self::admit) others. `again` makes a trainer of the communicator
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
        let kept = KeptStates::of(trainer)?;
        self.recover(Some(kept), again)
    }

    /// As [`go_on`](Self::go_on), of a rank that has kept states, or of one that has come.
    fn recover<T: Real>(
        &mut self,
        kept: Option<KeptStates<T>>,
        again: impl Fn(Communicator) -> Result<Trainer<T>>,
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
            let (trainer, came) = match self.attempt(&mut held, (&before, stuck), &again) {
                // Another rank has died meanwhile.
                Err(RecoveryError::Collective(_)) => continue,
                attempt => attempt?,
            };
            let gone = before.iter().copied().filter(|name| !self.names.contains(name)).collect();
            return Ok(Recovered { trainer, gone, came });
        }
    }

    /// Continues with the present ranks. `before`: the names of the ranks of the former world. `stuck`:
    /// this rank has found no dead rank.
    fn attempt<T: Real>(
        &mut self,
        held: &mut HeldState<T>,
        (before, stuck): (&[usize], bool),
        again: impl Fn(Communicator) -> Result<Trainer<T>>,
    ) -> std::result::Result<(Trainer<T>, Vec<usize>), RecoveryError> {
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
        let mut trainer = again(comm.duplicate()?)?;
        whole.put(&mut trainer)?;
        keep_states(&mut trainer, Some(whole))?;
        Ok((trainer, came))
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
