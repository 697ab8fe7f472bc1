//! A run goes on when a rank has died, if `--on-failure shrink` is given.

use super::prepare;
use crate::options::TrainingJob;
use crate::output;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::survivors::recovery::{RecoveryError, Survivors};
use maypole_trainer::train::worker::Worker;
use std::sync::Arc;

/// True of an error that the death of another rank may be the cause of.
pub(super) fn others_went(error: &anyhow::Error) -> bool {
    let saving = matches!(error.downcast_ref(), Some(CheckpointError::Collective(_)));
    saving || error.downcast_ref::<maypole::Error>().is_some()
}

/// Goes on without the ranks that have gone, or fails with `why` if none has. All that are left call
/// it; the first of them says who has gone.
pub(super) fn go_on(
    survivors: &mut Survivors,
    worker: Worker<f32>,
    job: &TrainingJob,
    why: anyhow::Error,
) -> anyhow::Result<Worker<f32>> {
    let device = Arc::clone(&worker.session.gpt.device);
    let again = |comm: maypole::Communicator| {
        let mesh = Mesh::replicas(comm.world());
        let setup = Setup { mesh, ..job.setup.clone() };
        let optimizer = (job.rule, job.schedule);
        let mut worker = Worker::<f32>::new(comm, &job.config, setup, job.seed, optimizer)?;
        prepare(&mut worker, job, &device)?;
        Ok(worker)
    };
    let mut recovered = match survivors.go_on(worker, again) {
        Err(RecoveryError::NoneGone(_)) => return Err(why),
        recovered => recovered?,
    };
    let worker = &mut recovered.worker;
    if worker.groups.world.rank() == 0 {
        let list =
            |ranks: &[usize]| ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        output::line(format_args!(
            "without rank {}: ranks {} go on from step {}",
            list(&recovered.gone),
            list(survivors.names()),
            worker.session.step
        ))?;
    }
    Ok(recovered.worker)
}
