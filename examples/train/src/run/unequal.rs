//! Measures layers before the first step, and prints how rows and layers are divided unequally.

use crate::options::TrainingJob;
use crate::output;
use maypole::Communicator;
use maypole_lab::unequal::layers::measured;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::train::parallelism::Parallelism;

/// The setup of `job`, with layers divided by their measured cost, if the job selects it. All
/// ranks call it; rank 0 prints the layers of each stage.
pub(super) fn setup(comm: &mut Communicator, job: &TrainingJob) -> anyhow::Result<Parallelism> {
    if !job.options.parallel.measures_layers() {
        return Ok(job.setup.clone());
    }
    let mesh = job.setup.mesh;
    let stages: Vec<usize> =
        (0..mesh.world()).map(|rank| mesh.place(rank).at(MeshAxis::Pp)).collect();
    let rows = job.setup.micro_rows(job.options.optimizer.rows());
    let layers = measured(comm, &job.config, rows, &stages)?;
    if comm.rank() == 0 {
        output::line(format_args!("layers of each stage, by what they cost: {}", list(&layers)))?;
    }
    Ok(Parallelism { layers: Some(layers), ..job.setup.clone() })
}

/// Describes the new division of rows, if it changed.
pub(super) fn change_of_rows(before: &[usize], after: Option<&[usize]>) -> Option<String> {
    let after = after?;
    let changed = !before.is_empty() && before != after;
    changed.then(|| format!("rows by speed: {} -> {}", list(before), list(after)))
}

fn list(counts: &[usize]) -> String {
    counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}
