//! The kept states of a rank, from which the others continue when one dies.

use crate::survivors::can_lose_ranks;
use crate::unequal::rows::RowDivision;
use maypole::Result;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::data_parallel::shards::Shards;
use maypole_trainer::model::store::{ParamShard, Store};
use maypole_trainer::ranks::exchange::shift_v;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::optim::{Optimizer, Update};
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::trainer::Trainer;
use std::any::Any;

/// The state of a rank after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepState<T> {
    /// Steps done.
    pub step: u64,
    /// All weights, in the order of the layout.
    pub weights: Vec<T>,
    /// The optimizer state of this rank's own part.
    pub own: Optimizer<T>,
    /// The copy of the previous rank's; without averages if nothing is sharded.
    pub copy: Optimizer<T>,
}

/// An optimizer that keeps the state before the current step, and a copy of the previous rank's part
/// of the optimizer.
#[derive(Debug)]
pub struct StateKeeper<T> {
    pub(super) group: RankGroup,
    /// The previous rank's parameters; `None` if every rank updates all.
    previous: Option<Shards>,
    pub(super) own: Optimizer<T>,
    pub(super) copy: Optimizer<T>,
    /// The state before the last step whose gradients were summed.
    pub(super) before: Option<StepState<T>>,
    /// The state from which this run continues after a death, with the whole optimizer. Dropped when all
    /// ranks have continued.
    pub(super) whole: Option<StepState<T>>,
}

/// From now on `trainer` keeps the states for recovery from the death of another rank. `whole`: its
/// present state, if it continues after a death. Collective.
///
/// # Errors
/// As the shift of the optimizer's averages.
///
/// # Panics
/// If weights are divided, differ between ranks or are of 16 bits, or if the mesh has another axis
/// than `dp`: there is no second copy of these.
pub fn keep_states<T: Real>(trainer: &mut Trainer<T>, whole: Option<StepState<T>>) -> Result<()> {
    let Parallelism { mesh, sharding, .. } = trainer.parallelism;
    let can = can_lose_ranks(mesh, sharding.into(), &RowDivision::Equal);
    can.unwrap_or_else(|why| panic!("{why}"));
    assert!(trainer.parts.clip.scale.is_none(), "16-bit numbers have no second copy");
    let rule = trainer.optimizer().rule;
    let mut own = std::mem::replace(trainer.optimizer_mut(), Optimizer::new(rule));
    let (group, layout) = (trainer.groups.copies.clone(), trainer.parts.store.layout());
    let world = group.world();
    let mut copy = Optimizer::new(rule);
    copy.steps = own.steps;
    let previous = Shard { index: (group.rank() + world - 1) % world, of: world };
    let sharded = matches!(trainer.parallelism.sharding, Sharding::Zero1 | Sharding::Zero2);
    let sharded = sharded && world > 1 && rule.states() > 0;
    let previous = sharded.then(|| Shards::new(layout, previous));
    if let Some(previous) = &previous {
        own.reserve(Shards::new(layout, group.shard()).len());
        copy.first = shift_v(&group, &own.first, previous.len())?;
        copy.second = shift_v(&group, &own.second, previous.len())?;
    }
    let keeper = StateKeeper { group, previous, own, copy, before: None, whole };
    trainer.parts.update = Box::new(keeper);
    Ok(())
}

impl<T: Real> StateKeeper<T> {
    /// The keeper of a trainer that keeps its states.
    pub fn of(trainer: &Trainer<T>) -> Option<&Self> {
        let update: &dyn Any = &*trainer.parts.update;
        update.downcast_ref()
    }

    /// The copy of the previous rank's part of the optimizer.
    pub fn copy(&self) -> &Optimizer<T> {
        &self.copy
    }

    /// Updates the copy as the previous rank updates its own part.
    fn follow(&mut self, owned: &[ParamShard<'_, T>], rate: f64, factor: f64) -> Result<()> {
        let (Some(previous), Some(before)) = (&self.previous, &self.before) else {
            return Ok(());
        };
        let own: Vec<T> = owned.iter().flat_map(|run| run.gradients.iter().copied()).collect();
        let mut gradients = shift_v(&self.group, &own, previous.len())?;
        let mut weights = previous.pack(&before.weights);
        let run = ParamShard { offset: 0, weights: &mut weights, gradients: &mut gradients };
        self.copy.step(&mut [run], rate, factor);
        Ok(())
    }
}

impl<T: Real> Update<T> for StateKeeper<T> {
    /// Keeps the state before a step of which all gradients were summed. Sends nothing.
    fn before(&mut self, step: u64, store: &mut dyn Store<T>) -> Result<()> {
        let mut weights = self.before.take().map_or_else(Vec::new, |before| before.weights);
        weights.clear();
        for unit in 0..store.layout().units.len() {
            weights.extend_from_slice(store.weights(unit)?);
            store.forward_done(unit)?;
        }
        let (own, copy) = (self.own.clone(), self.copy.clone());
        self.before = Some(StepState { step, weights, own, copy });
        self.whole = None;
        Ok(())
    }

    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, T>],
        rate: f64,
        factor: Option<f64>,
    ) -> Result<()> {
        let Some(factor) = factor else { return Ok(()) };
        self.follow(owned, rate, factor)?;
        self.own.step(owned, rate, factor);
        Ok(())
    }

    fn optimizer(&self) -> &Optimizer<T> {
        &self.own
    }

    fn optimizer_mut(&mut self) -> &mut Optimizer<T> {
        &mut self.own
    }
}
