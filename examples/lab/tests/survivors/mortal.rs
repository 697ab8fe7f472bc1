//! Ranks, as threads, of which some die in the middle of a step; and what must come of it.

use crate::support::{Recipe, small};
use maypole::{Communicator, Error, Result};
use maypole_lab::survivors::keeper::keep_states;
use maypole_lab::survivors::kept::RecoveryError;
use maypole_lab::survivors::recovery::Survivors;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::forward_store;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{ParamShard, Store, StoreBytes};
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The deadline of a call. A test that waits for it has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls of a store until a rank dies.
pub(crate) type Lifetime = Rc<Cell<Option<u64>>>;

/// A store whose rank dies at a call.
struct MortalStore {
    inner: Box<dyn Store<f32>>,
    left: Lifetime,
}

impl MortalStore {
    fn live(&self) -> Result<()> {
        let Some(left) = self.left.get() else { return Ok(()) };
        self.left.set(Some(left.saturating_sub(1)));
        let (rank, operation, why) = (0, "a test", "it dies here".to_owned());
        if left == 0 { Err(Error::Invalid { rank, operation, why }) } else { Ok(()) }
    }
}

impl Store<f32> for MortalStore {
    forward_store!(f32: layout, copies, diverges, pass_begins, local_shards, bytes);

    fn weights(&mut self, unit: usize) -> Result<&[f32]> {
        self.live()?;
        self.inner.weights(unit)
    }

    fn forward_done(&mut self, unit: usize) -> Result<()> {
        self.inner.forward_done(unit)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[f32], &mut [f32])> {
        self.live()?;
        self.inner.weights_and_gradients(unit)
    }

    fn gradients(&mut self, unit: usize) -> Result<&mut [f32]> {
        self.inner.gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.live()?;
        self.inner.backward_done(unit)
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.live()?;
        self.inner.finish_grad_sync()?;
        self.live()
    }

    fn all_gather_params(&mut self) -> Result<()> {
        self.inner.all_gather_params()
    }

    fn publish(&mut self) -> Result<()> {
        self.live()?;
        self.inner.publish()?;
        self.live()
    }

    fn all_weights(&mut self) -> Result<Vec<f32>> {
        self.inner.all_weights()
    }
}

/// A training of ranks that may die.
#[derive(Clone, Debug)]
pub(crate) struct Mortals {
    pub(crate) ranks: usize,
    pub(crate) sharding: Sharding,
    pub(crate) rows: usize,
    /// Which ranks die, and after how many calls of their store.
    pub(crate) deaths: Vec<(usize, u64)>,
}

/// What a rank that was left saw.
pub(crate) struct Seen {
    /// The loss of each step, as it was last done.
    pub(crate) losses: Vec<f64>,
    /// The ranks that were left each time, and the step from which they went on.
    pub(crate) worlds: Vec<(usize, u64)>,
}

pub(crate) fn task() -> Recipe {
    let task = small();
    Recipe {
        rule: Rule::ADAMW,
        schedule: RateSchedule::constant(0.01),
        steps: 8,
        clip: Some(0.5),
        ..task
    }
}

impl Mortals {
    pub(crate) fn trainer(&self, comm: Communicator) -> Result<Trainer<f32>> {
        task().trainer(comm, 1, self.sharding)
    }

    /// Trains on all ranks; those that die see nothing.
    pub(crate) fn run(&self) -> Vec<Option<std::result::Result<Seen, RecoveryError>>> {
        Communicator::run_local(self.ranks, |comm| self.rank(comm))
    }

    fn rank(&self, mut comm: Communicator) -> Option<std::result::Result<Seen, RecoveryError>> {
        let name = comm.rank();
        comm.set_timeout(TIMEOUT);
        let (task, text) = (task(), task().text());
        let mut survivors = Survivors::new(&mut comm).unwrap();
        let mut trainer = self.trainer(comm).unwrap();
        keep_states(&mut trainer, None).unwrap();
        let own = self.deaths.iter().find(|death| death.0 == name);
        let left: Lifetime = Rc::new(Cell::new(own.map(|death| death.1)));
        mortal(&mut trainer, &left);
        let mut seen = Seen { losses: Vec::new(), worlds: vec![(self.ranks, 0)] };
        while trainer.step < task.steps {
            match trainer.step(&text, self.rows) {
                Ok(outcome) => seen.losses.push(outcome.report.loss),
                Err(_) if left.get() == Some(0) => return None,
                Err(_) => {
                    match survivors.go_on(trainer, |comm| self.trainer(comm)) {
                        Ok(recovered) => trainer = recovered.trainer,
                        Err(why) => return Some(Err(why)),
                    }
                    mortal(&mut trainer, &left);
                    let step = trainer.step;
                    seen.losses.truncate(step as usize);
                    seen.worlds.push((survivors.names().len(), step));
                }
            }
        }
        Some(Ok(seen))
    }

    /// The losses of ranks of which none dies, but which are fewer from these steps on: each world
    /// continues from a checkpoint of the one before.
    pub(crate) fn expected(&self, worlds: &[(usize, u64)]) -> Vec<f64> {
        let folder = tempfile::tempdir().unwrap();
        let (task, text) = (task(), task().text());
        let mut saved: Option<PathBuf> = None;
        let mut losses = Vec::new();
        for (nth, (ranks, _)) in worlds.iter().enumerate() {
            let end = worlds.get(nth + 1).map_or(task.steps, |next| next.1);
            let folder = folder.path().join(nth.to_string());
            let done = Communicator::run_local(*ranks, |comm| {
                let mut trainer = self.trainer(comm).unwrap();
                if let Some(place) = &saved {
                    load(&mut trainer, place).unwrap();
                }
                let mut losses = Vec::new();
                while trainer.step < end {
                    losses.push(trainer.step(&text, self.rows).unwrap().report.loss);
                }
                (losses, save(&mut trainer, &folder).unwrap())
            });
            let (mut own, place) = done.into_iter().next().unwrap();
            losses.append(&mut own);
            saved = Some(place);
        }
        losses
    }
}

fn mortal(trainer: &mut Trainer<f32>, left: &Lifetime) {
    let nothing: Box<dyn Store<f32>> = Box::new(NoStore);
    let inner = std::mem::replace(&mut trainer.parts.store, nothing);
    trainer.parts.store = Box::new(MortalStore { inner, left: Rc::clone(left) });
}

/// Stands where a store was taken out.
struct NoStore;

impl Store<f32> for NoStore {
    fn layout(&self) -> &ParameterLayout {
        unreachable!()
    }

    fn weights(&mut self, _: usize) -> Result<&[f32]> {
        unreachable!()
    }

    fn weights_and_gradients(&mut self, _: usize) -> Result<(&[f32], &mut [f32])> {
        unreachable!()
    }

    fn local_shards(&mut self) -> Vec<ParamShard<'_, f32>> {
        unreachable!()
    }

    fn all_gather_params(&mut self) -> Result<()> {
        unreachable!()
    }

    fn publish(&mut self) -> Result<()> {
        unreachable!()
    }

    fn bytes(&self) -> StoreBytes {
        unreachable!()
    }
}
