//! The sizes of the model, what its blocks are made of, and its number format.

use super::{TrainOptions, named};
use anyhow::ensure;
use maypole_lab::averaging::DataForm;
use maypole_trainer::model::config::{Architecture, Config, divisor};
use maypole_trainer::tensor::device_choice::DeviceChoice;
use maypole_trainer::tensor::precision::Precision;

impl TrainOptions {
    /// The model, with the vocabulary that `--bpe` asks for; the text may give fewer tokens.
    pub(super) fn sizes(&self) -> anyhow::Result<Config> {
        Ok(Config {
            vocab: self.bpe.unwrap_or(256),
            context: self.context.unwrap_or(64),
            width: self.width.unwrap_or(128),
            heads: self.heads(),
            layers: self.layers.unwrap_or(4),
            experts: self.experts.unwrap_or(0),
            architecture: self.architecture()?,
        })
    }

    fn heads(&self) -> usize {
        self.heads.unwrap_or(4)
    }

    fn architecture(&self) -> anyhow::Result<Architecture> {
        let heads = self.heads();
        let kv_heads = self.kv_heads.unwrap_or_else(|| divisor(heads, heads / 2));
        let models = [("gpt", Architecture::Gpt), ("llama", Architecture::Llama { kv_heads })];
        let architecture = named(&self.model, "model", &models)?;
        ensure!(
            self.kv_heads.is_none() || architecture != Architecture::Gpt,
            "--kv-heads: every head of a gpt has keys of its own; \
             leave it out, or give --model llama"
        );
        Ok(architecture)
    }

    /// The device of each rank's layers. Makes sure that there is one.
    pub(super) fn device(&self) -> anyhow::Result<DeviceChoice> {
        let device = DeviceChoice::parse(self.device.as_deref().unwrap_or("cpu"))
            .map_err(anyhow::Error::msg)?;
        ensure!(
            device == DeviceChoice::Cpu || !self.measures_layers(),
            "--stages measured times layers on the processor: give the layers of each stage, as \
             3,1, or leave out --device"
        );
        device.gpu(crate::ranks::place()?.0).map_err(anyhow::Error::msg)?;
        Ok(device)
    }

    /// The number format of weights and activations.
    pub(super) fn precision(&self, form: DataForm) -> anyhow::Result<Precision> {
        let precisions =
            [("f32", Precision::F32), ("bf16", Precision::Bf16), ("f16", Precision::F16)];
        let precision = named(&self.precision, "precision", &precisions)?;
        let local = form.diverges();
        ensure!(
            !local || self.save.is_none(),
            "a checkpoint has one state, but with local SGD each rank of dp has its own: \
             leave out --save"
        );
        ensure!(
            !form.is_late() || self.save.is_none(),
            "a checkpoint has no sums that are under way: leave out --save, or give another \
             --sharding than stale"
        );
        ensure!(
            !local || precision == Precision::F32,
            "local SGD averages weights, and averages of 16-bit weights would lose \
             the precision of the 32-bit masters; \
             train in f32, or with another sharding"
        );
        Ok(precision)
    }
}
