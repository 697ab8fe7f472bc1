//! Training on one rank: the model, its weights, its optimizer, and the step.

use crate::expert_parallel::layer::RoutingRecord;
use crate::model::batch::TokenBatch;
use crate::model::gpt::Gpt;
use crate::model::layout::ParameterLayout;
use crate::model::mixed::MixedPrecisionStore;
use crate::model::store::Store;
use crate::pipeline_parallel::trace::PipelineTrace;
use crate::ranks::group::RankGroup;
use crate::ranks::memory::{MemoryKind, reset_peaks};
use crate::ranks::timeline::{RankActivity, Timeline};
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::Real;
use crate::tensor::precision::{HalfPrecisionDevice, LossScale};
use crate::train::clip::{GradientNorm, factor};
use crate::train::keeper::StateKeeper;
use crate::train::optim::{Optimizer, Rule};
use crate::train::passes::{LocalStages, Passes};
use crate::train::plateau::PlateauRate;
use crate::train::schedule::RateSchedule;
use crate::train::settings::RunSettings;
use maypole::Result;
use serde::Serialize;
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The model, weights, optimizer and data state of one rank's training.
pub struct TrainingSession<T> {
    /// The model.
    pub gpt: Gpt<T>,
    /// Weights and gradients.
    pub store: Box<dyn Store<T>>,
    /// The rule and its state.
    pub optimizer: Optimizer<T>,
    /// The size of each step.
    pub schedule: RateSchedule,
    /// What lowers the rate when the loss no longer falls, if the schedule says so.
    pub plateau: Option<PlateauRate>,
    /// What this rank keeps to go on without another one, if it does.
    pub keeper: Option<StateKeeper<T>>,
    /// The norm of the whole gradient, from the parts of all ranks.
    pub norm: GradientNorm,
    /// The most that the norm may be.
    pub clip: Option<f64>,
    /// The factor of losses before the backward pass, if gradients are 16-bit numbers.
    pub scale: Option<LossScale>,
    /// The stages of the model that are on this rank: one, unless it is in a pipeline.
    pub stages: LocalStages<T>,
    /// The choices of the routers of this rank in the last step, if the model has experts.
    pub routing: Rc<RefCell<RoutingRecord>>,
    /// The ranks whose losses add up to that of the batch.
    pub losses: RankGroup,
    /// False if another rank of `losses` has the loss of the same tokens and adds it to the sum.
    pub brings_loss: bool,
    /// The settings for checkpoints that are not in this session, if there are any.
    pub settings: Option<RunSettings>,
    /// The spans of time of this rank.
    pub timeline: Timeline,
    /// Steps done.
    pub step: u64,
    /// The most bytes of activations and of units in the last step.
    pub peaks: StepPeaks,
    /// Bytes of units that this thread held before this session was made.
    units_before: i64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The mean loss over the global batch, before the step.
    pub loss: f64,
    /// The norm of the gradient before clipping; `None` unless clipping or a loss scale needs it.
    pub norm: Option<f64>,
    /// The rate of the step.
    pub rate: f64,
}

/// A step, and when its passes ran.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// Loss, norm and rate, the same on every rank; the auxiliary loss is in the loss.
    pub report: StepReport,
    /// The passes of this rank with their times, in seconds from `start`.
    pub trace: PipelineTrace,
    /// When the step began.
    pub start: Instant,
    /// The most bytes of activations and of units.
    pub peaks: StepPeaks,
    /// Seconds of this rank's passes, without those in which it waited for other ranks.
    pub work: f64,
}

/// The most bytes that one rank held for a part of a step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StepPeaks {
    /// Of activations that waited for their backward pass at once.
    pub activations: usize,
    /// Of units of weights and gradients that the store gathered, made or widened at once; 0 if the
    /// program does not count its memory.
    pub units: usize,
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
        let stages = LocalStages::single(gpt.units());
        Self {
            gpt,
            store,
            optimizer,
            schedule,
            plateau: schedule.plateau(),
            keeper: None,
            norm,
            clip: None,
            scale: None,
            stages,
            routing: Rc::default(),
            losses,
            brings_loss: true,
            settings: None,
            timeline,
            step: 0,
            peaks: StepPeaks::default(),
            units_before: MemoryKind::Units.held(),
        }
    }

    /// One step over this rank's rows of the global batch, in as many micro-batches as are given:
    /// the training loop of every mesh. The step began at `start`, from which times are counted.
    ///
    /// # Errors
    /// As the links between stages and all collectives in it. If the device fails, this rank
    /// updates no weight, and all ranks get [`maypole::Error::Aborted`] with the reason.
    pub fn step(&mut self, batches: &[TokenBatch], start: Instant) -> Result<StepOutcome> {
        let scale = self.scale.map_or(1.0, |scale| scale.factor);
        let batches = scaled(batches, scale);
        reset_peaks();
        let store = &mut *self.store;
        let waited = self.timeline.waited();
        let passes = self.stages.run(&mut self.gpt, store, &self.routing, &batches, start);
        // A device that has failed is the cause of whatever failed after it.
        self.check_device()?;
        let passes = passes?;
        let waited = (self.timeline.waited() - waited).as_secs_f64();
        let lengths = passes.trace.spans.iter().map(|span| span.end - span.start);
        let work = lengths.sum::<f64>() - waited;
        let loss = passes.loss + self.routing.borrow().loss;
        let report = self.update(if self.brings_loss { loss } else { 0.0 })?;
        let units = (MemoryKind::Units.most() - self.units_before).max(0) as usize;
        let Passes { trace, activations, .. } = passes;
        self.peaks = StepPeaks { activations, units };
        Ok(StepOutcome { report, trace, start, peaks: self.peaks, work })
    }

    /// Makes sure that the device has not failed. If it has, tells all other ranks, whose calls then
    /// fail too.
    fn check_device(&self) -> Result<()> {
        self.gpt.device.failure().map_or(Ok(()), |why| Err(self.losses.abort(&why)))
    }

    /// The second half of a step, when all backward passes are done: sums, clips, updates. `loss`
    /// is that of this rank, times the scale if there is one.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn update(&mut self, loss: f64) -> Result<StepReport> {
        MemoryKind::Units.hold(|| self.store.finish())?;
        if let Some(keeper) = &mut self.keeper {
            let now = (self.step, self.plateau);
            keeper.remember(&mut *self.store, &self.optimizer, now)?;
        }
        let factor_of_rate = self.plateau.map_or(1.0, |plateau| plateau.factor());
        let rate = (self.schedule.rate(self.step) * factor_of_rate).max(self.lowest_rate());
        let scale = self.scale.map_or(1.0, |scale| scale.factor);
        let mut owned = MemoryKind::Units.hold(|| self.store.owned());
        let wanted = self.clip.is_some() || self.scale.is_some();
        let norm = wanted.then(|| self.norm.of(&owned)).transpose()?.map(|norm| norm / scale);
        let good = self.scale.as_mut().zip(norm).is_none_or(|(scale, norm)| scale.update(norm));
        if good {
            let factor = norm.map_or(1.0, |norm| factor(norm, self.clip)) / scale;
            if let Some(keeper) = &mut self.keeper {
                keeper.follow(&owned, rate, factor)?;
            }
            self.timeline
                .record(RankActivity::Update, || self.optimizer.step(&mut owned, rate, factor));
        }
        MemoryKind::Units.hold(|| self.store.publish())?;
        self.step += 1;
        let loss = self.losses.sum(loss / scale)?;
        if let Some(plateau) = &mut self.plateau {
            plateau.observe(loss);
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.end_step();
        }
        Ok(StepReport { loss, norm, rate })
    }

    /// The lowest rate to which a plateau may lower the schedule's rate.
    fn lowest_rate(&self) -> f64 {
        let warm = self.step >= self.schedule.warm_up;
        if self.plateau.is_some() && warm { self.schedule.floor } else { 0.0 }
    }
}

impl TrainingSession<f32> {
    /// Begins again in 16 bits, from `weights`: those of this rank's layout. Layers compute on the
    /// same device with rounded weights, which are in the store that `inner` makes, and round their results; the
    /// optimizer updates the weights in 32 bits.
    ///
    /// # Errors
    /// As `inner`.
    ///
    /// # Panics
    /// If there are not as many weights as the layout says.
    pub fn narrow<H: HalfFloat>(
        &mut self,
        weights: &[f32],
        inner: impl FnOnce(ParameterLayout, Vec<H>) -> Result<Box<dyn Store<H>>>,
    ) -> Result<()> {
        let mut rounded = vec![H::zero(); weights.len()];
        H::narrow(&mut rounded, weights);
        self.store = Box::new(MixedPrecisionStore::new(
            inner(self.store.layout().clone(), rounded)?,
            weights,
        ));
        let device = HalfPrecisionDevice::<H>::rounding(Arc::clone(&self.gpt.device));
        self.gpt.device = Arc::new(device);
        Ok(())
    }
}

/// The same rows, whose losses count `factor` times.
fn scaled(batches: &[TokenBatch], factor: f64) -> Cow<'_, [TokenBatch]> {
    if factor == 1.0 {
        return Cow::Borrowed(batches);
    }
    let one = |batch: &TokenBatch| TokenBatch { weight: batch.weight * factor, ..batch.clone() };
    batches.iter().map(one).collect()
}
