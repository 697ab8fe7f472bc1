//! A run with all its options settled.

use super::survival::OnFailure;
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_lab::unequal::rows::RowDivision;
use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::device_choice::DeviceChoice;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::settings::RunSettings;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::{DataFingerprint, Text};
use std::path::{Path, PathBuf};

/// A run with all its options settled.
pub(crate) struct TrainingJob {
    pub(crate) config: Config,
    pub(crate) setup: Setup,
    /// How ranks along `dp` learn from each other's rows.
    pub(crate) form: DataForm,
    /// The division of rows over replicas.
    pub(crate) row_division: RowDivision,
    /// Whether layers are divided by a measurement, which is made before the first step.
    pub(crate) measures_layers: bool,
    /// A deliberate mistake.
    pub(crate) fault: Option<Mistake>,
    pub(crate) rule: Rule,
    pub(crate) schedule: RateSchedule,
    pub(crate) clip: Option<f64>,
    pub(crate) precision: Precision,
    /// What computes the layers of each rank.
    pub(crate) device: DeviceChoice,
    pub(crate) recompute: bool,
    /// Steps between moves of experts.
    pub(crate) rebalance: Option<u64>,
    pub(crate) rows: usize,
    pub(crate) seed: u64,
    pub(crate) save: Option<PathBuf>,
    pub(crate) save_every: u64,
    /// Checkpoints to keep.
    pub(crate) keep: Option<usize>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) sample: usize,
    pub(crate) temperature: f64,
    /// What the sample follows.
    pub(crate) prompt: Option<String>,
    pub(crate) processes: bool,
    /// What the other ranks do when one has died.
    pub(crate) on_failure: OnFailure,
    /// Whether the run is compared with the same training in one process.
    pub(crate) against: bool,
    pub(crate) text: Text,
    /// The text for the validation loss: the end of the text.
    pub(crate) held_out: Text,
    /// The file for the loss of each step.
    pub(crate) losses: Option<PathBuf>,
    pub(crate) bpe: Bpe,
}

impl TrainingJob {
    /// The folder of checkpoints, if one is written after step `step`.
    pub(crate) fn saves_after(&self, step: u64) -> Option<&Path> {
        let due = step.is_multiple_of(self.save_every) || step == self.schedule.steps;
        self.save.as_deref().filter(|_| due)
    }

    /// The settings of this run that a checkpoint records.
    pub(crate) fn settings(&self) -> RunSettings {
        let data =
            DataFingerprint { vocabulary: self.bpe.fingerprint(), text: self.text.fingerprint() };
        RunSettings {
            rows: self.rows,
            seed: self.seed,
            precision: self.precision,
            router: self.setup.router,
            fault: self.fault.map(Mistake::name),
            data,
            bpe: self.bpe.clone(),
        }
    }
}
