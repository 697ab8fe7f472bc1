//! The section of the training: steps, batches, the update, and the numbers that it is done in.

use super::{named, section};
use anyhow::ensure;
use maypole_lab::averaging::DataForm;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::clip::MOST_SKIPPED;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::{RateSchedule, RateShape};
use serde::{Deserialize, Serialize};

section! {
    #[command(next_help_heading = "Its training")]
    OptimizerOptions {
        /// Number of steps [default: 200].
        steps: u64,
        /// Rows of a global batch [default: 16].
        rows: usize,
        /// adamw or sgd [default: adamw].
        optimizer: String,
        /// The highest learning rate [default: 0.003].
        rate: f64,
        /// How the rate changes: constant, cosine, wsd, linear [default: cosine].
        shape: String,
        /// Steps until the highest rate [default: a tenth].
        warm_up: u64,
        /// The most that the gradient's norm may be; 0 for any [default: 1].
        clip: f64,
        /// Steps in a row whose gradient is not finite, after which the run ends with an error. Each of
        /// them updates no weight [default: 5].
        max_skipped: u64,
        /// f32, bf16 or f16 [default: f32].
        precision: String,
        /// Keep only the input of each block, and compute the rest again in the backward pass.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        recompute: bool,
        /// Seed of the initial weights and of the rows [default: 1].
        seed: u64,
    }
}

impl OptimizerOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.rows != Some(0), "--rows needs a positive number");
        ensure!(self.max_skipped != Some(0), "--max-skipped needs a positive number");
        for (name, number) in [("rate", self.rate), ("clip", self.clip)] {
            super::check_number(name, number)?;
        }
        Ok(())
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.unwrap_or(200)
    }

    /// Rows of a global batch.
    pub(crate) fn rows(&self) -> usize {
        self.rows.unwrap_or(16)
    }

    /// The seed of weights and rows.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// The most that the norm of the gradient may be.
    pub(crate) fn clip(&self) -> Option<f64> {
        Some(self.clip.unwrap_or(1.0)).filter(|clip| *clip > 0.0)
    }

    /// Skipped steps in a row that end the run.
    pub(crate) fn max_skipped(&self) -> u64 {
        self.max_skipped.unwrap_or(MOST_SKIPPED)
    }

    /// True if blocks keep only their input.
    pub(crate) fn recompute(&self) -> bool {
        self.recompute == Some(true)
    }

    /// The optimizer.
    pub(super) fn rule(&self) -> anyhow::Result<Rule> {
        named(&self.optimizer, "optimizer", &[("adamw", Rule::ADAMW), ("sgd", Rule::Sgd)])
    }

    /// The number format of weights and activations.
    pub(super) fn precision(&self) -> anyhow::Result<Precision> {
        let precisions =
            [("f32", Precision::F32), ("bf16", Precision::Bf16), ("f16", Precision::F16)];
        named(&self.precision, "precision", &precisions)
    }

    /// The learning rate of each step.
    pub(super) fn schedule(&self) -> anyhow::Result<RateSchedule> {
        let shapes = [
            ("cosine", RateShape::Cosine),
            ("constant", RateShape::Constant),
            ("wsd", RateShape::Wsd),
            ("linear", RateShape::Linear),
        ];
        let steps = self.steps();
        let peak = self.rate.unwrap_or(3e-3);
        let warm_up = self.warm_up.unwrap_or(steps / 10);
        let shape = named(&self.shape, "shape", &shapes)?;
        Ok(RateSchedule { shape, peak, floor: peak / 10.0, warm_up, decay: steps / 5, steps })
    }

    /// Refuses options that change nothing, and numbers that a `form` of averaging would spoil.
    pub(super) fn check_effects(&self, form: DataForm) -> anyhow::Result<()> {
        ensure!(
            self.warm_up.is_none_or(|steps| steps == 0)
                || self.shape.as_deref() != Some("constant"),
            "--warm-up raises a rate that --shape constant keeps"
        );
        ensure!(
            !form.diverges() || self.precision()? == Precision::F32,
            "local SGD averages weights, and averages of 16-bit weights would lose \
             the precision of the 32-bit masters; \
             train in f32, or with another sharding"
        );
        Ok(())
    }
}
