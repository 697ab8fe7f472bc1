//! Prints the memory of each rank at the end of a run, by kind, with the theoretical values.

use crate::options::TrainingJob;
use crate::output;
use maypole_lab::memory::{FULL, RankMemory};
use maypole_lab::theory::RankTheory;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer_kernels::counting;

/// From now on the allocator counts allocations of this thread for rank `rank`.
pub(super) fn count(rank: usize) {
    counting::count_for(rank + 1);
}

/// Numbers of a rank: five kinds, the same five by theory, and the most bytes at one time.
const NUMBERS: usize = 11;

/// Prints the memory of every rank. All ranks call it.
pub(super) fn say(trainer: &Trainer<f32>, job: &TrainingJob, rows: &[usize]) -> anyhow::Result<()> {
    let world = &trainer.groups.world;
    let peaks = trainer.watch.peaks;
    let kinds = |memory: RankMemory, activations: usize, units: usize| {
        [memory.weights, memory.gradients, memory.optimizer, activations, units]
    };
    let measured = kinds(RankMemory::of(trainer), peaks.activations, peaks.units);
    let [activations, units] = theory_of_a_step(trainer, job, rows);
    let theory = kinds(theory_between_steps(trainer, job), activations, units);
    let most = counting::of_owner(counting::owner()).peak.max(0) as usize;
    let numbers = [&measured[..], &theory[..], &[most]].concat();
    let all = world.gather(&numbers.into_iter().map(|bytes| bytes as u64).collect::<Vec<_>>())?;
    if world.rank() > 0 {
        return Ok(());
    }
    output::line(
        "memory in MiB   weights  gradients  optimizer  activations      units     in all",
    )?;
    for (rank, numbers) in all.chunks_exact(NUMBERS).enumerate() {
        let (measured, theory) = numbers.split_at(5);
        let most = mib(theory[5], 11);
        output::line(format!("  of rank {rank:<5} {}{most}", columns(measured)))?;
        output::line(format!("    by theory   {}", columns(&theory[..5])))?;
    }
    Ok(output::line(
        "activations, units held for a moment: the most of the last step; \
         in all: the most of the\nrun at one time, with the text, work space and what the library \
         keeps",
    )?)
}

fn columns(kinds: &[u64]) -> String {
    kinds.iter().zip([7, 11, 11, 13, 11]).map(|(bytes, wide)| mib(*bytes, wide)).collect()
}

fn mib(bytes: u64, wide: usize) -> String {
    format!("{:>wide$.2}", bytes as f64 / f64::from(1 << 20))
}

/// Weights, gradients and optimizer by theory. It takes the shards of a unit to be equal; they
/// differ by one element where the ranks do not divide the unit.
fn theory_between_steps(trainer: &Trainer<f32>, job: &TrainingJob) -> RankMemory {
    let copies = trainer.parallelism.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Cp]);
    let parameters = trainer.parts.store.layout().len();
    let width = if job.precision == Precision::F32 { FULL } else { 2 };
    let states = if trainer.step == 0 { 0 } else { job.rule.states() };
    RankMemory::theory(job.form, parameters, copies, states, width)
}

/// Activations and units by theory, if replicas had these `rows`; nothing, if no step was done.
fn theory_of_a_step(trainer: &Trainer<f32>, job: &TrainingJob, rows: &[usize]) -> [usize; 2] {
    if trainer.watch.peaks.activations == 0 {
        return [0; 2];
    }
    let own = trainer.groups.rows().index;
    let site = RankTheory {
        config: &job.config,
        setup: &trainer.parallelism,
        place: trainer.groups.place,
        rows: rows.get(own).map_or(job.options.optimizer.rows(), |own| own * rows.len()),
        element: FULL,
        recompute: job.options.optimizer.recompute(),
    };
    let routing = trainer.parts.pipeline.routing.borrow();
    let mixed = job.precision != Precision::F32;
    let activations =
        if mixed { site.activations_in_16_bits(&routing) } else { site.activations(&routing) };
    [activations, site.units(job.form, mixed)]
}
