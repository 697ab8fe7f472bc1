//! A run on one rank: the model, its weights, its optimizer, and the step.

use crate::model::batch::TokenBatch;
use crate::model::gpt::Gpt;
use crate::model::layout::ParameterLayout;
use crate::model::mixed::MixedPrecisionStore;
use crate::model::store::Store;
use crate::ranks::group::RankGroup;
use crate::ranks::timeline::{Activity, Timeline};
use crate::tensor::math::Real;
use crate::tensor::precision::{HalfFloat, HalfPrecisionDevice, LossScale};
use crate::train::accumulation::micro_batches;
use crate::train::clip::{GradientNorm, factor};
use crate::train::optim::{Optimizer, Rule};
use crate::train::schedule::RateSchedule;
use crate::train::text::DataFingerprint;
use maypole::Result;
use serde::Serialize;
use std::sync::Arc;

/// What a rank trains with.
pub struct TrainingSession<T> {
    /// The model.
    pub gpt: Gpt<T>,
    /// Weights and gradients.
    pub store: Box<dyn Store<T>>,
    /// The rule and its state.
    pub optimizer: Optimizer<T>,
    /// The size of each step.
    pub schedule: RateSchedule,
    /// How the gradient's norm is made of everybody's.
    pub norm: GradientNorm,
    /// The most that the norm may be.
    pub clip: Option<f64>,
    /// What losses are multiplied by before the backward pass, if gradients are 16-bit numbers.
    pub scale: Option<LossScale>,
    /// The ranks whose losses add up to that of the batch.
    pub losses: RankGroup,
    /// What it trains on, if a checkpoint is to say so.
    pub source: Option<DataFingerprint>,
    /// Where the time goes.
    pub timeline: Timeline,
    /// Steps done.
    pub step: u64,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The mean loss over the global batch, before the step.
    pub loss: f64,
    /// The norm of the gradient before clipping; not asked for unless something depends on it.
    pub norm: Option<f64>,
    /// The rate of the step.
    pub rate: f64,
}

impl<T: Real> TrainingSession<T> {
    /// A run in which `data` is the data-parallel group and the model of a rank is whole. Weights
    /// are the store's.
    pub fn new(
        gpt: Gpt<T>,
        store: Box<dyn Store<T>>,
        rule: Rule,
        schedule: RateSchedule,
        data: &RankGroup,
    ) -> Self {
        let copies = store.copies();
        let apart = store.diverges();
        let norm = GradientNorm::new(
            store.layout(),
            if apart { RankGroup::single() } else { data.clone() },
            |_| copies,
        );
        let timeline = data.timeline().clone();
        let optimizer = Optimizer::new(rule);
        let losses = data.clone();
        Self {
            gpt,
            store,
            optimizer,
            schedule,
            norm,
            clip: None,
            scale: None,
            losses,
            source: None,
            timeline,
            step: 0,
        }
    }

    /// One step over this rank's rows of the global batch, in as many micro-batches as are given.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn step(&mut self, batches: &[TokenBatch]) -> Result<StepReport> {
        let loss = match self.scale {
            None => micro_batches(&mut self.gpt, &mut *self.store, batches)?,
            Some(scale) => {
                micro_batches(&mut self.gpt, &mut *self.store, &scaled(batches, scale.factor))?
            }
        };
        self.update(loss)
    }

    /// The second half of a step, when all backward passes are done: sums, clips, updates. `loss`
    /// is that of this rank, times the scale if there is one.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn update(&mut self, loss: f64) -> Result<StepReport> {
        self.store.finish()?;
        let rate = self.schedule.rate(self.step);
        let scale = self.scale.map_or(1.0, |scale| scale.factor);
        let mut owned = self.store.owned();
        let wanted = self.clip.is_some() || self.scale.is_some();
        let norm = wanted.then(|| self.norm.of(&owned)).transpose()?.map(|norm| norm / scale);
        let good = self.scale.as_mut().zip(norm).is_none_or(|(scale, norm)| scale.update(norm));
        if good {
            let factor = norm.map_or(1.0, |norm| factor(norm, self.clip)) / scale;
            self.timeline
                .record(Activity::Update, || self.optimizer.step(&mut owned, rate, factor));
        }
        self.store.publish()?;
        self.step += 1;
        Ok(StepReport { loss: self.losses.sum(loss / scale)?, norm, rate })
    }
}

impl TrainingSession<f32> {
    /// Begins again from these `weights`, all of this rank's layout, in 16 bits: layers see them
    /// rounded, in the store that `inner` makes, and give rounded results; the optimizer works on
    /// them as they are.
    ///
    /// # Panics
    /// If there are not as many weights as the layout says.
    pub fn narrow<H: HalfFloat>(
        &mut self,
        weights: &[f32],
        inner: impl FnOnce(ParameterLayout, Vec<H>) -> Box<dyn Store<H>>,
    ) {
        let mut rounded = vec![H::zero(); weights.len()];
        H::narrow(&mut rounded, weights);
        self.store = Box::new(MixedPrecisionStore::new(
            inner(self.store.layout().clone(), rounded),
            weights,
        ));
        self.gpt.device = Arc::new(HalfPrecisionDevice::<H>::default());
    }
}

fn scaled(batches: &[TokenBatch], factor: f64) -> Vec<TokenBatch> {
    batches
        .iter()
        .map(|batch| TokenBatch { weight: batch.weight * factor, ..batch.clone() })
        .collect()
}
