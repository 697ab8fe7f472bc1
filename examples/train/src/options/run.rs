//! The section of the run: its device and processes, its files, and its sample of text.

use super::{check_number, section};
use crate::output::files;
use anyhow::ensure;
use maypole_lab::averaging::DataForm;
use maypole_trainer_gpu::choice::DeviceChoice;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

section! {
    #[command(next_help_heading = "The run and its files")]
    RunOptions {
        /// What computes layers: cpu; cuda (NVIDIA GPUs, rank r on number r modulo how many there are);
        /// cuda:N. Activations are copied to the GPU and back on every layer: a check of kernels and
        /// axes, and not a fast trainer [default: cpu].
        device: String,
        /// Start the ranks as processes instead of threads.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        processes: bool,
        /// Folder for checkpoints; a run resumes from the last complete one there.
        save: PathBuf,
        /// Steps between checkpoints [default: 100]; there is one at the end too.
        save_every: u64,
        /// Checkpoints to keep: older ones are removed when a new one is whole [default: all].
        keep: usize,
        /// A file for the loss, norm and rate of each step, one JSON object a line; a resumed run
        /// continues the file from the step of its checkpoint.
        losses: PathBuf,
        /// Tokens to write at the end [default: 300].
        sample: usize,
        /// The divisor of logits when they are drawn; 0 takes the likeliest [default: 0.8].
        temperature: f64,
        /// What they follow [default: a line of the text that was held out].
        prompt: String,
    }
}

impl RunOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.save_every != Some(0), "--save-every needs a positive number");
        ensure!(self.keep != Some(0), "--keep needs a positive number");
        ensure!(
            self.prompt.as_deref() != Some(""),
            "--prompt is empty: give the text that the sample at the end follows"
        );
        check_number("temperature", self.temperature)
    }

    /// Tokens to write at the end.
    pub(crate) fn sample(&self) -> usize {
        self.sample.unwrap_or(300)
    }

    /// The divisor of logits when they are drawn.
    pub(crate) fn temperature(&self) -> f64 {
        self.temperature.unwrap_or(0.8)
    }

    /// True if the ranks are processes.
    pub(crate) fn starts_processes(&self) -> bool {
        self.processes == Some(true)
    }

    /// The folder of checkpoints, if one is written after step `step` of `steps`.
    pub(crate) fn saves_after(&self, step: u64, steps: u64) -> Option<&Path> {
        let due = step.is_multiple_of(self.save_every.unwrap_or(100)) || step == steps;
        self.save.as_deref().filter(|_| due)
    }

    /// Refuses options without effect, and checkpoints of a `form` without a common state.
    pub(super) fn check_effects(&self, form: DataForm) -> anyhow::Result<()> {
        ensure!(
            self.save_every.is_none() || self.save.is_some(),
            "--save-every needs --save, the folder for checkpoints"
        );
        ensure!(
            self.keep.is_none() || self.save.is_some(),
            "--keep needs --save, the folder for checkpoints"
        );
        ensure!(
            self.temperature.is_none() || self.sample != Some(0),
            "--temperature is of the text at the end, and --sample 0 writes none"
        );
        ensure!(
            self.prompt.is_none() || self.sample != Some(0),
            "--prompt is of the text at the end, and --sample 0 writes none"
        );
        ensure!(
            !form.diverges() || self.save.is_none(),
            "a checkpoint has one state, but with local SGD each rank of dp has its own: \
             leave out --save"
        );
        ensure!(
            !form.is_late() || self.save.is_none(),
            "a checkpoint has no sums that are under way: leave out --save, or give another \
             --sharding than stale"
        );
        Ok(())
    }

    /// The device of each rank's layers. Makes sure that there is one.
    pub(super) fn device(&self, measures_layers: bool) -> anyhow::Result<DeviceChoice> {
        let device = DeviceChoice::parse(self.device.as_deref().unwrap_or("cpu"))
            .map_err(anyhow::Error::msg)?;
        ensure!(
            device == DeviceChoice::Cpu || !measures_layers,
            "--stages measured times layers on the processor: give the layers of each stage, as \
             3,1, or leave out --device"
        );
        device.gpu(crate::ranks::place()?.0).map_err(anyhow::Error::msg)?;
        Ok(device)
    }

    /// Checks that files and folders of results can be written. Only rank 0 writes them.
    pub(super) fn try_outputs(&self) -> anyhow::Result<()> {
        if crate::ranks::place()?.0 > 0 {
            return Ok(());
        }
        self.save.as_deref().map_or(Ok(()), |folder| files::try_folder("--save", folder))?;
        self.losses.as_deref().map_or(Ok(()), |file| files::try_file("--losses", file))
    }
}
