//! The device of a rank's layers: opened before the first step, and checked for failures.

use crate::options::TrainingJob;
use crate::output;
use anyhow::{Error, anyhow};
use maypole::Communicator;
use maypole_trainer::tensor::device::Device;
use maypole_trainer_gpu::choice::OpenDevice;

/// Opens the device of this rank, or fails on all ranks with the error. Rank 0 prints the device,
/// unless it is the CPU.
pub(super) fn open(comm: &Communicator, job: &TrainingJob) -> anyhow::Result<OpenDevice<f32>> {
    let opened = job.device.open::<f32>(comm.rank()).map_err(|why| {
        comm.abort(&why);
        Error::msg(why)
    })?;
    if comm.rank() == 0 && !opened.about.is_empty() {
        output::line(format_args!("rank 0 computes layers on {}", opened.about))?;
    }
    Ok(opened)
}

/// Checks that the device has not failed. After a failure its results are invalid.
pub(super) fn check(device: &dyn Device<f32>) -> anyhow::Result<()> {
    let failed = |why| Err(anyhow!("the device that computes layers has failed: {why}"));
    device.failure().map_or(Ok(()), failed)
}
