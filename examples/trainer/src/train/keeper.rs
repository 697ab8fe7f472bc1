//! What each rank keeps to be able to go on without another one.

use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store};
use crate::ranks::exchange::shift_v;
use crate::ranks::group::RankGroup;
use crate::ranks::shard::Shard;
use crate::tensor::math::Real;
use crate::train::optim::Optimizer;
use crate::train::plateau::PlateauRate;
use maypole::Result;

/// The state of a rank after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepState<T> {
    /// Steps done.
    pub step: u64,
    /// All weights, in the order of the layout.
    pub weights: Vec<T>,
    /// The optimizer of what this rank updates.
    pub own: Optimizer<T>,
    /// The copy of the previous rank's; without averages if nothing is sharded.
    pub copy: Optimizer<T>,
    /// What lowers the rate, if the schedule says so.
    pub plateau: Option<PlateauRate>,
}

/// The copy of the previous rank's part of the optimizer, and the state before the step under way.
#[derive(Debug)]
pub struct StateKeeper<T> {
    pub(super) group: RankGroup,
    /// The previous rank's parameters; `None` if every rank updates all.
    previous: Option<Shards>,
    pub(super) copy: Optimizer<T>,
    /// The state before the last step that was begun.
    pub(super) before: Option<StepState<T>>,
    /// The state from which this run goes on after a death, with the whole optimizer: until all
    /// ranks have begun to go on from it.
    pub(super) whole: Option<StepState<T>>,
    /// Whether the session's state is that after a step, and not in the middle of an update.
    pub(super) done: bool,
}

impl<T: Real> StateKeeper<T> {
    /// Begins to keep the state of a session that has `optimizer` and parameters of this `layout`, and
    /// whose replicas are the ranks of `group`. `sharded`: each rank updates its part of each unit. Collective: all ranks of the group call it.
    ///
    /// # Errors
    /// As the collective.
    pub fn new(
        optimizer: &mut Optimizer<T>,
        layout: &ParameterLayout,
        group: &RankGroup,
        sharded: bool,
    ) -> Result<Self> {
        let world = group.world();
        let mut copy = Optimizer::new(optimizer.rule);
        copy.steps = optimizer.steps;
        let previous = Shard { index: (group.rank() + world - 1) % world, of: world };
        let sharded = sharded && world > 1 && optimizer.rule.states() > 0;
        let previous = sharded.then(|| Shards::new(layout, previous));
        if let Some(previous) = &previous {
            optimizer.reserve(Shards::new(layout, group.shard()).len());
            copy.first = shift_v(group, &optimizer.first, previous.len())?;
            copy.second = shift_v(group, &optimizer.second, previous.len())?;
        }
        let group = group.clone();
        Ok(Self { group, previous, copy, before: None, whole: None, done: true })
    }

    /// The copy of the previous rank's part of the optimizer.
    pub fn copy(&self) -> &Optimizer<T> {
        &self.copy
    }

    /// Keeps the state before a step of which all gradients were summed. Sends nothing.
    pub(crate) fn remember(
        &mut self,
        store: &mut dyn Store<T>,
        own: &Optimizer<T>,
        (step, plateau): (u64, Option<PlateauRate>),
    ) -> Result<()> {
        let mut weights = self.before.take().map_or_else(Vec::new, |before| before.weights);
        weights.clear();
        for unit in 0..store.layout().units.len() {
            weights.extend_from_slice(store.weights(unit)?);
            store.forward_done(unit)?;
        }
        let (own, copy) = (own.clone(), self.copy.clone());
        self.before = Some(StepState { step, weights, own, copy, plateau });
        self.whole = None;
        self.done = false;
        Ok(())
    }

    /// Updates the copy as the previous rank updates what it owns.
    ///
    /// # Errors
    /// As the shift of gradients.
    pub(crate) fn follow(
        &mut self,
        owned: &[OwnedRun<'_, T>],
        rate: f64,
        factor: f64,
    ) -> Result<()> {
        let (Some(previous), Some(before)) = (&self.previous, &self.before) else {
            return Ok(());
        };
        let own: Vec<T> = owned.iter().flat_map(|run| run.gradients.iter().copied()).collect();
        let mut gradients = shift_v(&self.group, &own, previous.len())?;
        let mut weights = previous.pack(&before.weights);
        let run = OwnedRun { offset: 0, weights: &mut weights, gradients: &mut gradients };
        self.copy.step(&mut [run], rate, factor);
        Ok(())
    }

    /// The step is done on this rank.
    pub(crate) fn end_step(&mut self) {
        self.done = true;
    }
}
