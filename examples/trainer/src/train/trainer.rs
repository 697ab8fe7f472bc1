//! The step of a rank on any mesh, and its parts.
//!
//! ```text
//! rows of a batch -- dp, ep --> micro-batches -- pp: plan --> stage -- tp, cp, ep in a block
//!                                                               |
//!                       update <-- dp, cp: the store's sums <-- ep, tp: partial sums
//! ```
//!
//! [`Trainer::step`] is the same for all meshes: an axis is a choice of [`Parts`], which
//! [`crate::train::parts`] makes. Every part may be replaced before a step by another one of its
//! kind: by one that keeps copies for the death of a rank, by one that makes a deliberate mistake,
//! or by the solution of an exercise.
//!
//! What is sharded: layers over `pp`, experts over `ep`, matrices over `tp`; rows over `dp` and
//! `ep`, positions over `cp`. Which collective runs where, and cost: the sum of the axes' own.

use crate::model::store::Store;
use crate::model::transformer::Transformer;
use crate::ranks::group::RankGroup;
use crate::ranks::memory::reset_peaks;
use crate::ranks::mesh::MeshGroups;
use crate::ranks::traffic::Traffic;
use crate::tensor::math::Real;
use crate::train::clip::Clip;
use crate::train::optim::{Optimizer, Update};
use crate::train::parallelism::Parallelism;
use crate::train::pipeline::Pipeline;
use crate::train::rows::Rows;
use crate::train::schedule::RateSchedule;
use crate::train::settings::RunRecord;
use crate::train::stores::StorePlan;
use crate::train::text::Text;
use crate::train::watch::{Passes, StepOutcome, StepReport, Watch};
use maypole::Result;

/// One rank of a mesh, with its part of the model.
pub struct Trainer<T> {
    /// The division of the model over ranks.
    pub parallelism: Parallelism,
    /// The groups of ranks with which this rank communicates.
    pub groups: MeshGroups,
    /// What a step is made of.
    pub parts: Parts<T>,
    /// How the store of the parts is made.
    pub stores: StorePlan<T>,
    /// Steps done.
    pub step: u64,
    /// What is measured of a step.
    pub watch: Watch,
    /// The settings for checkpoints that are not in the other fields, if there are any.
    pub settings: Option<RunRecord>,
}

/// The parts of a step. Each may be replaced by another one.
pub struct Parts<T> {
    /// dp, ep, cp: the rows and positions of this rank.
    pub rows: Box<dyn Rows>,
    /// tp: region and vocabulary; cp: attention; ep: feed-forward part.
    pub model: Transformer<T>,
    /// pp: the stages of this rank, and the plan by which it runs them.
    pub pipeline: Pipeline<T>,
    /// dp: weights and gradients.
    pub store: Box<dyn Store<T>>,
    /// The length of the gradient: its norm over all ranks, the most that it may be, and the scale
    /// of losses.
    pub clip: Clip,
    /// The optimizer.
    pub update: Box<dyn Update<T>>,
    /// The size of each step.
    pub rate: RateSchedule,
}

impl<T: Real> Trainer<T> {
    /// Trains on the next batch of `count` rows of `text`.
    ///
    /// # Errors
    /// As every collective. If the device fails, this rank updates no weight, and all ranks return
    /// [`maypole::Error::Aborted`] with the cause. [`maypole::Error::Invalid`] if the text cannot be
    /// read, if the ranks cannot divide `count` rows, or if the gradients of several steps in a row
    /// were not finite ([`Clip`]).
    pub fn step(&mut self, text: &Text, count: usize) -> Result<StepOutcome> {
        reset_peaks();
        let (report, passes) = self.train(text, count)?;
        Ok(self.watch.end(report, passes))
    }

    /// [`step`](Self::step) without its measurements.
    fn train(&mut self, text: &Text, count: usize) -> Result<(StepReport, Passes)> {
        let Parts { rows, model, pipeline, store, clip, update, rate } = &mut self.parts;
        let batches = rows.microbatches(text, (self.step, count), clip.loss_scale())?;
        // Gradients are summed over ranks as soon as the last micro-batch has made them.
        let passes = pipeline.forward_backward(model, &mut **store, &batches)?;
        store.finish_grad_sync()?;
        update.before(self.step, &mut **store)?;
        // All parameters, or the part that this rank updates (ZeRO, FSDP).
        let mut shards = store.local_shards();
        // One norm over all ranks; no factor if it is not finite.
        let factor = clip.factor(&shards)?;
        let rate = rate.rate(self.step);
        self.watch.update(|| update.step(&mut shards, rate, factor))?;
        // The others get this rank's part, and gradients are zero.
        store.publish()?;
        let loss = pipeline.losses.sum(clip.unscaled(passes.loss))?;
        self.step += 1;
        rows.after(self.step, passes.work)?;
        Ok((StepReport { loss, norm: clip.last, rate }, passes))
    }

    /// The optimizer and its averages.
    pub fn optimizer(&self) -> &Optimizer<T> {
        self.parts.update.optimizer()
    }

    /// The same, to be changed.
    pub fn optimizer_mut(&mut self) -> &mut Optimizer<T> {
        self.parts.update.optimizer_mut()
    }

    /// Bytes of payload that this rank has sent so far, by group, as the library counts them.
    pub fn sent(&self) -> Traffic {
        let MeshGroups { ep, cp, tp, copies, world, .. } = &self.groups;
        let [ep, cp, tp, copies, world] = [ep, cp, tp, copies, world].map(RankGroup::payload);
        Traffic { pp: self.parts.pipeline.links.payload(), ep, cp, tp, copies, world }
    }
}
