//! A run with resolved options, and the objects built from them.

use super::TrainOptions;
use super::lab::OnFailure;
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_lab::unequal::rows::RowDivision;
use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::settings::RunRecord;
use maypole_trainer::train::text::{DataFingerprint, Text};
use maypole_trainer_gpu::choice::DeviceChoice;

/// A run with all its options settled.
pub(crate) struct TrainingJob {
    pub(crate) options: TrainOptions,
    pub(crate) config: Config,
    pub(crate) setup: Parallelism,
    /// How ranks along `dp` learn from each other's rows.
    pub(crate) form: DataForm,
    /// The division of rows over replicas.
    pub(crate) row_division: RowDivision,
    pub(crate) fault: Option<Mistake>,
    pub(crate) rule: Rule,
    pub(crate) schedule: RateSchedule,
    pub(crate) precision: Precision,
    /// What computes the layers of each rank.
    pub(crate) device: DeviceChoice,
    /// What the other ranks do when one has died.
    pub(crate) on_failure: OnFailure,
    pub(crate) text: Text,
    /// The text for the validation loss: the end of the text.
    pub(crate) held_out: Text,
    pub(crate) bpe: Bpe,
}

impl TrainingJob {
    /// What the sample follows; `None` for a line of the text that was held out.
    pub(crate) fn prompt(&self) -> Option<&str> {
        // The text that is trained on without --data.
        let plays = self.options.data.data.is_none().then_some("KING.\n");
        self.options.run.prompt.as_deref().or(plays)
    }

    /// The metadata of this run in a checkpoint.
    pub(crate) fn record(&self) -> RunRecord {
        let data =
            DataFingerprint { vocabulary: self.bpe.fingerprint(), text: self.text.fingerprint() };
        let options = self.options.record();
        RunRecord { router: self.setup.router, data, bpe: self.bpe.clone(), options }
    }
}
