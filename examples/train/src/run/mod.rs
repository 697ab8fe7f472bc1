//! `train run` on one rank.

mod device;
mod memory;
mod progress;
mod record;
mod report;
mod resume;
mod survive;
mod unequal;

use crate::options::TrainingJob;
use crate::output;
use anyhow::ensure;
use half::{bf16, f16};
use maypole::Communicator;
use maypole::schedule::hosts::Hosts;
use maypole_lab::against::OneProcess;
use maypole_lab::mistakes::{Mistake, plant_overflow};
use maypole_lab::rebalance::{ExpertMove, rebalance};
use maypole_lab::replay::gather_trace;
use maypole_lab::report::bubble::account;
use maypole_lab::report::shares::RunClock;
use maypole_lab::survivors::keeper::keep_states;
use maypole_lab::survivors::recovery::Survivors;
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan};
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::precision::{LossScale, Precision};
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::clip::Clip;
use maypole_trainer::train::sample::{Sampling, sample};
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::validation::JUDGED;
use maypole_trainer::train::watch::StepOutcome;
use progress::StepProgress;
use record::{LastReports, LossRecord};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

/// The tokens among which a line is looked for that a sample follows.
const PROMPT_TOKENS: usize = 400;
/// The most bytes of a prompt from a text without lines.
const LONGEST_PROMPT: usize = 40;

/// Runs the job on one rank: trains, saves, reports, validates; rank 0 also writes a sample.
pub(crate) fn rank(comm: Communicator, job: &TrainingJob) -> anyhow::Result<()> {
    memory::count(comm.rank());
    let shared = share_cores(comm.hosts());
    let device = device::open(&comm, job)?.device;
    let (mut survivors, mut trainer) = begin(comm, job, &device)?;
    let mut clock = RunClock::start(&trainer.watch.timeline);
    let mut reports = LastReports::default();
    loop {
        let run = (&mut clock, &mut reports);
        let ended = to_the_end(&mut trainer, job, shared, run);
        match (ended, &mut survivors) {
            (Err(why), Some(survivors)) if survive::world_changes(&why) => {
                trainer = survive::go_on(survivors, trainer, job, why)?;
                clock = RunClock::start(&trainer.watch.timeline);
            }
            (ended, _) => return ended,
        }
    }
}

/// The trainer of this rank, new or from the last checkpoint, and its means of recovery from a death.
fn begin(
    mut comm: Communicator,
    job: &TrainingJob,
    device: &Arc<dyn Device<f32>>,
) -> anyhow::Result<(Option<Survivors>, Trainer<f32>)> {
    let survivors = survive::begin(&mut comm, job)?;
    let optimizer = (job.rule, job.schedule);
    let setup = unequal::setup(&mut comm, job)?;
    let mut trainer =
        Trainer::<f32>::new(comm, &job.config, setup, job.options.optimizer.seed(), optimizer)?;
    prepare(&mut trainer, job, device)?;
    if trainer.groups.world.rank() == 0 {
        let map = job.setup.mesh.map();
        output::print(format!("{} parameters; {map}", job.config.parameters()).as_bytes())?;
        if let Some(fault) = job.fault {
            output::line(fault_notice(&fault.name()))?;
        }
    }
    resume::resume(&mut trainer, job)?;
    if survivors.is_some() {
        keep_states(&mut trainer, None)?;
    }
    Ok((survivors, trainer))
}

/// Runs the remaining steps, prints their progress, and finishes the run.
fn to_the_end(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    shared: bool,
    (clock, reports): (&mut RunClock, &mut LastReports),
) -> anyhow::Result<()> {
    let last = train(trainer, job, shared, (clock, reports))?;
    report::report(trainer, job, &last, &clock.run())?;
    ensure!(
        last.loss.is_finite(),
        "the loss of step {} is not a number: {}",
        trainer.step,
        remedy(job)
    );
    finish(trainer, job, clock, shared)
}

fn prepare(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    device: &Arc<dyn Device<f32>>,
) -> maypole::Result<()> {
    trainer.parts.model.device = Arc::clone(device);
    match job.precision {
        Precision::F32 => job.form.plant(trainer, job.options.optimizer.seed())?,
        Precision::Bf16 => {
            trainer.narrow::<bf16>(job.options.optimizer.seed())?;
            job.form.plant_narrow::<bf16>(trainer, job.options.optimizer.seed())?;
        }
        Precision::F16 => {
            trainer.narrow::<f16>(job.options.optimizer.seed())?;
            job.form.plant_narrow::<f16>(trainer, job.options.optimizer.seed())?;
        }
    }
    job.row_division.plant(trainer);
    trainer.parts.model.recompute = job.options.optimizer.recompute();
    trainer.parts.clip.limit = job.options.optimizer.clip();
    trainer.parts.clip.most_skipped = job.options.optimizer.max_skipped();
    trainer.parts.clip.scale = (job.precision == Precision::F16).then(LossScale::default);
    trainer.settings = Some(job.record());
    if let Some(step) = job.options.lab.overflow {
        plant_overflow(trainer, step - 1);
    }
    job.fault.map_or(Ok(()), |mistake| mistake.plant(trainer, job.options.optimizer.seed()))
}

/// Whether a host has more ranks than cores, so that ranks may wait for a core. All hosts are taken
/// to have as many cores as this one.
fn share_cores(hosts: &Hosts) -> bool {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    hosts.sizes().into_iter().any(|ranks| ranks > cores)
}

/// The notice of a planted mistake, which no other line of the output shows.
fn fault_notice(name: &str) -> String {
    format!(
        "the mistake {name} is planted in this run (--fault): it trains wrongly, and \
         --against one finds it"
    )
}

/// The advice for a run whose loss is no longer a number.
fn remedy(job: &TrainingJob) -> String {
    let rate = format!("try a --rate below {:?}", job.schedule.peak);
    let clip = if job.options.optimizer.clip().is_none() { ", --clip 1" } else { "" };
    let precision = if job.precision == Precision::F32 { "" } else { ", --precision f32" };
    rate + clip + precision
}

struct LastStep {
    /// False before the first step.
    is_done: bool,
    /// Whether ranks share cores.
    shared: bool,
    loss: f64,
    /// The rows of each replica; empty where all replicas had equally many.
    rows: Vec<usize>,
}

fn train(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    shared: bool,
    (clock, reports): (&mut RunClock, &mut LastReports),
) -> anyhow::Result<LastStep> {
    let mut last = LastStep { is_done: false, shared, loss: 0.0, rows: Vec::new() };
    let steps = job.schedule.steps;
    let me = trainer.groups.world.rank();
    let mut progress = StepProgress::new(me, trainer.step, steps, shared);
    let file = job.options.run.losses.as_deref().filter(|_| me == 0);
    let mut record = LossRecord::new(file, trainer.step, reports)?;
    let tokens = (job.options.optimizer.rows() * job.config.context) as u64;
    let mut beside = against(trainer, job)?;
    while trainer.step < steps {
        let rows = trainer.parts.rows.each().unwrap_or_default().to_vec();
        let skipped = trainer.parts.clip.skipped.all;
        let (outcome, spans) = one_step(trainer, job)?;
        last = LastStep { is_done: true, shared, loss: outcome.report.loss, rows };
        clock.end_period(&spans);
        reports.push(trainer.step, outcome.report);
        record.step(trainer.step, outcome.report)?;
        progress.step(trainer.step, last.loss, tokens, clock)?;
        if trainer.parts.clip.skipped.all > skipped {
            progress.say(trainer.step, "its gradient is not finite, and no weight was updated")?;
        }
        if let Some(change) = unequal::change_of_rows(&last.rows, trainer.parts.rows.each()) {
            progress.say(trainer.step, &change)?;
        }
        if let Some(one) = &mut beside {
            let compare =
                || one.step(trainer, outcome.report, &job.text, job.options.optimizer.rows());
            let seen = clock.record(RankActivity::Validation, compare)?;
            progress.say(trainer.step, &seen.to_string())?;
        }
        if job.options.lab.rebalance.is_some_and(|every| trainer.step.is_multiple_of(every)) {
            let moves = clock
                .record(RankActivity::Moving, || rebalance(trainer, Mistake::moves(job.fault)))?;
            beside.as_mut().map_or(Ok(()), |one| one.moved(&moves))?;
            progress.say(trainer.step, &balance(&moves))?;
        }
        // Weights whose loss is no number may be spoilt, and must not replace a checkpoint.
        let due = job.options.run.saves_after(trainer.step, steps);
        if let Some(folder) = due.filter(|_| last.loss.is_finite()) {
            let removed =
                clock.record(RankActivity::Saving, || save_and_remove(trainer, job, folder))?;
            removed.map_or(Ok(()), |why| progress.say(trainer.step, &why))?;
        }
    }
    progress.done();
    Ok(last)
}

/// The training in one process to compare with, if the job selects it.
fn against(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
) -> anyhow::Result<Option<OneProcess<f32>>> {
    let (optimizer, seed) = ((job.rule, job.schedule), job.options.optimizer.seed());
    let begin =
        || OneProcess::beside(trainer, &job.config, seed, optimizer, job.options.optimizer.clip());
    Ok(job.options.lab.against.is_some().then(begin).transpose()?)
}

/// Does a step; returns its outcome, and the spans of time of this rank in it.
fn one_step(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
) -> anyhow::Result<(StepOutcome, Vec<TimeSpan>)> {
    let timeline = trainer.watch.timeline.clone();
    let start = timeline.now();
    let outcome = trainer.step(&job.text, job.options.optimizer.rows());
    device::check(&*trainer.parts.model.device)?;
    let Clip { skipped, most_skipped, .. } = &trainer.parts.clip;
    ensure!(
        outcome.is_ok() || skipped.in_a_row < *most_skipped,
        "the gradient was not finite in {} steps in a row, up to step {}: {}",
        skipped.in_a_row,
        trainer.step + 1,
        remedy(job)
    );
    let outcome = outcome?;
    let noted = timeline.take();
    let pipeline = gather_trace(trainer, &outcome)?;
    // The ranks exchanged their spans just now. That belongs to the measurement, not to the step.
    timeline.take();
    let spans = account(noted, &outcome.trace, &pipeline, start);
    Ok((outcome, spans))
}

/// Writes a checkpoint, then removes those that are not kept; returns why an old one stays.
fn save_and_remove(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    folder: &Path,
) -> anyhow::Result<Option<String>> {
    save(trainer, folder)?;
    Ok(if trainer.groups.world.rank() == 0 { resume::remove_old(job) } else { None })
}

/// Describes for each layer the imbalance of the ranks of `ep` and, where experts moved, the new
/// imbalance.
fn balance(moves: &[ExpertMove]) -> String {
    let layer = |it: &ExpertMove| {
        let [before, after] = it.uneven;
        if it.any() { format!("{before:.2} -> {after:.2}") } else { format!("{before:.2}") }
    };
    format!(
        "rows of the busiest rank over the mean, by layer: {}",
        moves.iter().map(layer).collect::<Vec<_>>().join(", ")
    )
}

/// Gives ranks that train apart the model that the run gives: the average of their models.
fn average(trainer: &mut Trainer<f32>) -> maypole::Result<()> {
    let store = &mut trainer.parts.store;
    if store.diverges() {
        let model = store.all_weights()?;
        store.local_shards()[0].weights.copy_from_slice(&model);
    }
    Ok(())
}

/// The first whole line of a text, or its first words if it has no lines.
fn a_line(text: &Text, bpe: &Bpe) -> anyhow::Result<Vec<u32>> {
    let bytes = bpe.decode(&text.beginning(PROMPT_TOKENS)?);
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').skip(1);
    let mut whole = lines.filter(|line| line.len() > 1 && line.ends_with(b"\n"));
    let words = whole.next().unwrap_or(&bytes[..bytes.len().min(LONGEST_PROMPT)]);
    Ok(bpe.encode(words))
}

/// Validates on all ranks. Rank 0 prints the validation loss, the time of the whole run, and a sample
/// of text.
fn finish(
    trainer: &mut Trainer<f32>,
    job: &TrainingJob,
    clock: &mut RunClock,
    shared: bool,
) -> anyhow::Result<()> {
    average(trainer)?;
    let judge = || trainer.validate(&job.held_out, JUDGED);
    let loss = clock.record(RankActivity::Validation, judge)?;
    device::check(&*trainer.parts.model.device)?;
    ensure!(loss.is_finite(), "the validation loss is not a number: {}", remedy(job));
    let first = trainer.groups.world.rank() == 0;
    if first {
        let experts = if job.config.experts > 0 {
            "; the losses of steps have the auxiliary loss of the experts, too"
        } else {
            ""
        };
        output::line(format_args!(
            "validation loss {loss:.4} nats a token, on the last tenth of the text, which was held \
             out{experts}"
        ))?;
        output::line(format_args!("rank 0 in all, {}", report::time_line(&clock.run(), shared)))?;
    }
    if job.options.run.sample() == 0 {
        return Ok(());
    }
    let prompt = match job.prompt() {
        Some(prompt) => job.bpe.encode(prompt.as_bytes()),
        None => a_line(&job.held_out, &job.bpe)?,
    };
    let draw =
        Sampling { temperature: job.options.run.temperature(), seed: job.options.optimizer.seed() };
    let tokens = sample(trainer, &prompt, job.options.run.sample(), draw)?;
    device::check(&*trainer.parts.model.device)?;
    if first {
        let text = job.bpe.decode(&[prompt, tokens].concat());
        output::line(format_args!("\n{}", String::from_utf8_lossy(&text)))?;
    }
    Ok(())
}
