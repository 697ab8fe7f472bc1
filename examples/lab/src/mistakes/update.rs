//! A planted overflow, and mistakes of the update: a step that one rank alone skips, and weights that
//! have no copy in 32 bits.

use half::bf16;
use maypole::Result;
use maypole_trainer::model::store::{ParamShard, Store};
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::optim::{Optimizer, Update};
use maypole_trainer::train::trainer::Trainer;

/// What is done around an update.
#[derive(Clone, Copy, Debug, PartialEq)]
enum UpdateSpoil {
    /// No mistake: in this step one gradient of this rank is infinite, as after an overflow.
    Overflow { step: u64 },
    /// A rank whose own gradients are finite updates its weights.
    SkippedAlone,
    /// Weights are rounded to 16 bits after each update.
    NoMasters,
}

/// An update with something around it.
struct SpoiltUpdate<T> {
    inner: Box<dyn Update<T>>,
    spoil: UpdateSpoil,
}

fn spoil<T: Real>(update: &mut Box<dyn Update<T>>, spoil: UpdateSpoil) {
    let rule = update.optimizer().rule;
    let inner = std::mem::replace(update, Box::new(Optimizer::new(rule)));
    *update = Box::new(SpoiltUpdate { inner, spoil });
}

/// From now on the gradients of `trainer` overflow in step number `step`, from 0: the last rank makes
/// the last of its own infinite. A trainer without a mistake skips this step on all ranks.
pub fn plant_overflow<T: Real>(trainer: &mut Trainer<T>, step: u64) {
    let world = &trainer.groups.world;
    if world.rank() + 1 == world.world() {
        spoil(&mut trainer.parts.update, UpdateSpoil::Overflow { step });
    }
}

/// Each rank decides by its own gradients whether it skips a step.
pub(super) fn skip_alone<T: Real>(update: &mut Box<dyn Update<T>>) {
    spoil(update, UpdateSpoil::SkippedAlone);
}

/// The optimizer updates rounded weights.
pub(super) fn no_masters<T: Real>(update: &mut Box<dyn Update<T>>) {
    spoil(update, UpdateSpoil::NoMasters);
}

impl<T: Real> Update<T> for SpoiltUpdate<T> {
    fn before(&mut self, step: u64, store: &mut dyn Store<T>) -> Result<()> {
        self.inner.before(step, store)?;
        if self.spoil == (UpdateSpoil::Overflow { step }) {
            let mut owned = store.local_shards();
            let last = owned.iter_mut().rev().find_map(|run| run.gradients.last_mut());
            *last.expect("a rank updates some weights") = T::of(f64::INFINITY);
        }
        Ok(())
    }

    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, T>],
        rate: f64,
        mut factor: Option<f64>,
    ) -> Result<()> {
        let mut gradients = owned.iter().flat_map(|run| run.gradients.iter());
        if self.spoil == UpdateSpoil::SkippedAlone && gradients.all(|g| g.wide().is_finite()) {
            factor = factor.or(Some(1.0));
        }
        self.inner.step(owned, rate, factor)?;
        if self.spoil == UpdateSpoil::NoMasters {
            let weights = owned.iter_mut().flat_map(|run| run.weights.iter_mut());
            weights.for_each(|w| *w = T::of(bf16::from_f64(w.wide()).to_f64()));
        }
        Ok(())
    }

    fn optimizer(&self) -> &Optimizer<T> {
        self.inner.optimizer()
    }

    fn optimizer_mut(&mut self) -> &mut Optimizer<T> {
        self.inner.optimizer_mut()
    }
}
