//! The report of a run after its last step: bytes and time of each rank, load of experts.

use super::LastStep;
use super::memory;
use super::progress::split;
use crate::options::TrainingJob;
use crate::output;
use maypole_lab::rebalance::load;
use maypole_lab::report::shares::TimeShares;
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::clip::Clip;
use maypole_trainer::train::trainer::Trainer;

/// Reports bytes and time of every rank. All ranks call it; `time` is that of all steps of this rank.
pub(super) fn report(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    last: &LastStep,
    time: &TimeShares,
) -> anyhow::Result<()> {
    let world = trainer.groups.world.clone();
    memory::say(trainer, job, &last.rows)?;
    let times = world.gather(&time.to_nanos())?;
    let load = load(trainer)?;
    if world.rank() != 0 {
        return Ok(());
    }
    let times = times.chunks_exact(TimeShares::NUMBERS).map(TimeShares::from_nanos);
    // A run that had nothing left to train has no time to divide.
    for (rank, time) in times.enumerate().filter(|_| last.is_done) {
        output::line(format!("rank {rank}: {}", time_line(&time, last.shared)))?;
    }
    print_skipped(trainer)?;
    print_load(&load, job)
}

/// `12.3 s: compute 71 %  exposed communication 12 %  other 17 %`.
pub(super) fn time_line(time: &TimeShares, shared: bool) -> String {
    format!("{:.1} s: {}", time.total().as_secs_f64(), split(time, shared))
}

fn print_skipped(trainer: &Trainer<f32>) -> anyhow::Result<()> {
    let Clip { skipped, scale, .. } = &trainer.parts.clip;
    if skipped.all == 0 && scale.is_none() {
        return Ok(());
    }
    let factor = |scale: &LossScale| format!("; losses are now multiplied by {}", scale.factor);
    Ok(output::line(format_args!(
        "{} of {} steps had a gradient that was not finite and were skipped{}",
        skipped.all,
        trainer.step,
        scale.as_ref().map(factor).unwrap_or_default()
    ))?)
}

/// Prints the tokens of each expert. Right after a move all are 0, and nothing is printed.
fn print_load(load: &[u64], job: &TrainingJob) -> anyhow::Result<()> {
    if load.iter().all(|load| *load == 0) {
        return Ok(());
    }
    let of = |expert| load.iter().skip(expert).step_by(job.config.experts).sum();
    let load: Vec<u64> = (0..job.config.experts).map(of).collect();
    let since = if job.options.lab.rebalance.is_some() { "the last move" } else { "the start" };
    let rows = histogram(&load, 40);
    let text = format!("tokens of all layers by place of an expert, since {since}:\n{rows}");
    Ok(output::print(text.as_bytes())?)
}

/// The load of each expert as a bar of at most `width` characters, one line for each expert.
fn histogram(load: &[u64], width: usize) -> String {
    let most = load.iter().copied().max().unwrap_or(0).max(1);
    let bar = |load: u64| "#".repeat((load as usize * width).div_ceil(most as usize));
    let lines = load.iter().enumerate();
    lines.map(|(expert, load)| format!("expert {expert:>3} {load:>7} {}\n", bar(*load))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_has_a_line_an_expert() {
        assert_eq!(histogram(&[4, 1], 4), "expert   0       4 ####\nexpert   1       1 #\n");
    }
}
