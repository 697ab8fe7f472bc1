//! Resumes a run from its last complete checkpoint, if there is one, and prints where it begins.

use crate::options::{SettingChange, TrainingJob, changes};
use crate::output;
use anyhow::Context;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::checkpoint::history::{CheckpointHistory, agreed};
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::trainer::Trainer;
use std::path::Path;

/// Loads the last complete checkpoint into `trainer`, if the job has a folder of them. All ranks
/// call it; rank 0 prints which checkpoint is loaded, whether a later one is incomplete, and which
/// settings have changed since.
pub(super) fn resume(trainer: &mut Trainer<f32>, job: &TrainingJob) -> anyhow::Result<()> {
    let Some(folder) = &job.options.run.save else { return Ok(()) };
    let world = trainer.groups.world.clone();
    let (history, place) = agreed(&world, folder)?;
    let Some(place) = place else {
        let start = "beginning with step 1";
        return if world.rank() == 0 { say_interrupted(&history, start) } else { Ok(()) };
    };
    let changes = changes(&load(trainer, &place)?, job);
    if let Some(fault) = job.fault {
        fault.plant_resumed(trainer);
    }
    let step = trainer.step;
    if let Some(why) = too_few(step, job.schedule.steps, &place) {
        // Every rank finds this error; rank 0 reports it.
        return match world.rank() {
            0 => Err(anyhow::Error::msg(why)),
            _ => Err(CheckpointError::Rank { rank: 0, why }.into()),
        };
    }
    if world.rank() == 0 {
        say_interrupted(&history, &format!("going on from step {step}"))?;
        say(&place, &changes)?;
    }
    Ok(())
}

fn too_few(done: u64, steps: u64, place: &Path) -> Option<String> {
    (done > steps).then(|| {
        format!(
            "{} was saved after {done} steps, and --steps {steps} is fewer: \
             give --steps {done} or more, or another --save",
            place.display()
        )
    })
}

fn say_interrupted(history: &CheckpointHistory, instead: &str) -> anyhow::Result<()> {
    let Some(last) = history.interrupted().last() else { return Ok(()) };
    Ok(output::line(format_args!("{last}, {instead}"))?)
}

fn say(place: &Path, changes: &[SettingChange]) -> anyhow::Result<()> {
    output::line(format_args!("from {}", place.display()))?;
    for change in changes {
        output::line(format_args!("changed since then: {change}"))?;
    }
    Ok(())
}

/// Removes all but the last `--keep` checkpoints, if that is given. Rank 0 calls it. Returns what
/// went wrong as text: a checkpoint that stays is no reason to stop a run.
pub(super) fn remove_old(job: &TrainingJob) -> Option<String> {
    let keep = job.options.run.keep?;
    let folder = job.options.run.save.as_deref()?;
    let removed = CheckpointHistory::read(folder).and_then(|history| history.keep_last(keep));
    let removed = removed.with_context(|| format!("--keep {keep}: an old checkpoint stays"));
    removed.err().map(|why| format!("{why:#}"))
}
