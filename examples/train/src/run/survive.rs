//! Recovery from the death of a rank, by `--on-failure`: the run continues without the rank, or saves a
//! checkpoint and ends.

use super::{prepare, save_and_remove};
use crate::options::{OnFailure, TrainingJob};
use crate::output;
use anyhow::anyhow;
use maypole::{Communicator, Error};
use maypole_lab::survivors::kept::RecoveryError;
use maypole_lab::survivors::recovery::{Recovered, Survivors};
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::trainer::Trainer;
use std::sync::Arc;

/// True if the death of a rank may have caused this error, so that the ranks have to agree on a new
/// world.
pub(super) fn world_changes(error: &anyhow::Error) -> bool {
    let saving = matches!(error.downcast_ref(), Some(CheckpointError::Collective(_)));
    // An unreadable text does not indicate a death.
    let cause = error.downcast_ref().filter(|error| !matches!(error, Error::Invalid { .. }));
    saving || cause.is_some()
}

/// The ranks of `comm`, if the job is to survive a death.
pub(super) fn begin(
    comm: &mut Communicator,
    job: &TrainingJob,
) -> anyhow::Result<Option<Survivors>> {
    if !job.on_failure.survives() {
        return Ok(None);
    }
    Ok(Some(Survivors::new(comm)?))
}

/// Continues without dead ranks, or fails with `why` if the ranks are unchanged. All surviving ranks
/// call it; the first of them prints the change.
pub(super) fn go_on(
    survivors: &mut Survivors,
    trainer: Trainer<f32>,
    job: &TrainingJob,
    why: anyhow::Error,
) -> anyhow::Result<Trainer<f32>> {
    let device = Arc::clone(&trainer.parts.model.device);
    let again = |comm: Communicator| again(comm, job, &device);
    let mut recovered = match survivors.go_on(trainer, again) {
        Err(RecoveryError::NoneGone(_)) => return Err(why),
        recovered => recovered?,
    };
    tell(survivors, &recovered)?;
    if job.on_failure == OnFailure::Wait {
        return Err(save_and_end(&mut recovered.trainer, job)?);
    }
    Ok(recovered.trainer)
}

/// The trainer of this rank in the new world.
fn again(
    comm: Communicator,
    job: &TrainingJob,
    device: &Arc<dyn Device<f32>>,
) -> maypole::Result<Trainer<f32>> {
    let mesh = Mesh::replicas(comm.world());
    let setup = Parallelism { mesh, ..job.setup.clone() };
    let optimizer = (job.rule, job.schedule);
    let mut trainer =
        Trainer::<f32>::new(comm, &job.config, setup, job.options.optimizer.seed(), optimizer)?;
    prepare(&mut trainer, job, device)?;
    Ok(trainer)
}

/// Prints, on the first rank, the dead ranks and those of the new world.
fn tell(survivors: &Survivors, recovered: &Recovered<f32>) -> anyhow::Result<()> {
    let Recovered { trainer, gone } = recovered;
    if trainer.groups.world.rank() > 0 {
        return Ok(());
    }
    let list = |ranks: &[usize]| ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    let (gone, names, step) = (list(gone), list(survivors.names()), trainer.step);
    Ok(output::line(format_args!("without rank {gone}: ranks {names} go on from step {step}"))?)
}

/// Saves a checkpoint after the last step that all ranks have done. Returns the error with which this
/// rank ends.
fn save_and_end(trainer: &mut Trainer<f32>, job: &TrainingJob) -> anyhow::Result<anyhow::Error> {
    let folder = job.options.run.save.as_deref().expect("--on-failure wait needs --save");
    let step = trainer.step;
    if step == 0 {
        return Ok(anyhow!("a rank has died before the first step was done; nothing is saved"));
    }
    save_and_remove(trainer, job, folder)?;
    let folder = folder.display();
    Ok(anyhow!("a rank has died; what all ranks have done, to step {step}, is saved in {folder}"))
}
