//! The measurements of a step: its loss, the times of its passes, and its peak memory.

use crate::pipeline_parallel::trace::PipelineTrace;
use crate::ranks::memory::MemoryKind;
use crate::ranks::timeline::{RankActivity, Timeline};
use serde::Serialize;
use std::time::Instant;

/// The results of the passes of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Passes {
    /// The weighted loss of this rank's micro-batches, with the auxiliary loss of its experts; zero
    /// if another rank brings it.
    pub loss: f64,
    /// The start and end of each pass, in seconds from `start`.
    pub trace: PipelineTrace,
    /// The start of the passes.
    pub start: Instant,
    /// Peak bytes of activations that waited for their backward pass.
    pub activations: usize,
    /// Seconds of the passes, without those in which this rank waited for other ranks.
    pub work: f64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The mean loss over the global batch, before the step.
    pub loss: f64,
    /// The norm of the gradient before clipping. If it is not finite, no weight was updated.
    pub norm: f64,
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
    /// When the passes began.
    pub start: Instant,
    /// The most bytes of activations and of units.
    pub peaks: StepPeaks,
    /// Seconds of this rank's passes, without those in which it waited for other ranks.
    pub work: f64,
}

/// The most bytes that one rank held for a part of a step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StepPeaks {
    /// Of activations that waited for their backward pass.
    pub activations: usize,
    /// Of units of weights and gradients that the store gathered, made or widened; 0 if the program does
    /// not count its memory.
    pub units: usize,
}

/// The measurements of one rank.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The spans of time of this rank.
    pub timeline: Timeline,
    /// The most bytes of activations and of units in the last step.
    pub peaks: StepPeaks,
    /// The time after a barrier of all ranks: traces of different ranks count from here.
    epoch: Instant,
    /// Bytes of units that this thread held before there was a trainer.
    units_before: i64,
}

impl Watch {
    /// Begins to measure, when all ranks have met.
    pub(super) fn new(timeline: Timeline) -> Self {
        let (epoch, peaks) = (Instant::now(), StepPeaks::default());
        Self { timeline, peaks, epoch, units_before: MemoryKind::Units.held() }
    }

    /// Notes the time of the update.
    pub(super) fn update<R>(&self, update: impl FnOnce() -> R) -> R {
        self.timeline.record(RankActivity::Update, update)
    }

    /// Ends a step with this report and these passes.
    pub(super) fn end(&mut self, report: StepReport, passes: Passes) -> StepOutcome {
        let Passes { trace, start, activations, work, .. } = passes;
        let units = (MemoryKind::Units.most() - self.units_before).max(0) as usize;
        self.peaks = StepPeaks { activations, units };
        StepOutcome { report, trace, start, peaks: self.peaks, work }
    }

    /// Seconds from the meeting of all ranks to `time`.
    pub fn since_epoch(&self, time: Instant) -> f64 {
        time.duration_since(self.epoch).as_secs_f64()
    }
}
