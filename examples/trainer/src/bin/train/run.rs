//! `train run` on one rank.

use crate::options::{Precision, TrainingJob};
use crate::outputs;
use crate::progress::{StepProgress, split};
use crate::record::LossRecord;
use anyhow::ensure;
use half::{bf16, f16};
use maypole::Communicator;
use maypole::schedule::hosts::Hosts;
use maypole_trainer::check::memory::RankMemory;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::rebalance::ExpertMove;
use maypole_trainer::expert_parallel::router::histogram;
use maypole_trainer::pipeline_parallel::bubble::account;
use maypole_trainer::pipeline_parallel::draw::svg;
use maypole_trainer::pipeline_parallel::trace::{PipelineTrace, simulate};
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan};
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::chart;
use maypole_trainer::train::checkpoint::{latest, load, manifest, save};
use maypole_trainer::train::sample::{Sampling, generate, whole_weights};
use maypole_trainer::train::session::TrainingSession;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::DataFingerprint;
use maypole_trainer::train::validation::validation_loss;
use maypole_trainer::train::worker::Worker;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Trains, saves, draws, judges and writes.
pub(crate) fn rank(comm: Communicator, job: &TrainingJob) -> anyhow::Result<()> {
    let shared = share_cores(comm.hosts());
    let mut worker = Worker::<f32>::new(
        comm,
        &job.config,
        job.setup.clone(),
        job.seed,
        (job.rule, job.schedule),
    )?;
    prepare(&mut worker, job);
    let me = worker.groups.world.rank();
    if me == 0 {
        print!("{} parameters; {}", job.config.parameters(), job.setup.mesh.map());
    }
    if let Some(place) = job.save.as_deref().and_then(latest) {
        load(&mut worker.session, &place)?;
        if me == 0 {
            let before = manifest(&place)?.source;
            let same = before.is_none_or(|before| Some(before) == worker.session.source);
            println!(
                "from {}{}",
                place.display(),
                if same { "" } else { ", which has learnt from other rows" }
            );
        }
    }
    let (losses, last) = train(&mut worker, job, shared)?;
    let first = worker.session.step - losses.len() as u64;
    report(&mut worker, &last, job, &losses, first)?;
    ensure!(
        last.loss.is_finite(),
        "the loss of step {} is not a number: {}",
        worker.session.step,
        remedy(job)
    );
    match alone(&mut worker, job)? {
        Some(whole) => finish(whole.session, job),
        None => Ok(()),
    }
}

fn prepare(worker: &mut Worker<f32>, job: &TrainingJob) {
    match job.precision {
        Precision::F32 => {}
        Precision::Bf16 => worker.narrow::<bf16>(job.seed),
        Precision::F16 => worker.narrow::<f16>(job.seed),
    }
    let session = &mut worker.session;
    session.clip = job.clip;
    session.source =
        Some(DataFingerprint { vocabulary: job.bpe.fingerprint(), rows: job.text.fingerprint() });
    session.gpt.recompute = job.recompute;
    session.scale = (job.precision == Precision::F16).then(LossScale::default);
}

/// Whether ranks take turns on cores, so that one which waits may wait for a core. All hosts are
/// taken to be as this one.
fn share_cores(hosts: &Hosts) -> bool {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    hosts.sizes().into_iter().any(|ranks| ranks > cores)
}

/// What to try when a loss is no number any more.
fn remedy(job: &TrainingJob) -> String {
    let rate = format!("try a --rate below {:?}", job.schedule.peak);
    let clip = if job.clip.is_none() { ", --clip 1" } else { "" };
    let precision = if job.precision == Precision::F32 { "" } else { ", --precision f32" };
    rate + clip + precision
}

/// What the last step left behind.
struct LastStep {
    spans: Vec<TimeSpan>,
    wall: Duration,
    /// What all stages of this rank's pipeline did, if there was a step.
    pipeline: Option<PipelineTrace>,
    /// Whether ranks share cores.
    shared: bool,
    loss: f64,
}

fn train(
    worker: &mut Worker<f32>,
    job: &TrainingJob,
    shared: bool,
) -> anyhow::Result<(Vec<f64>, LastStep)> {
    let mut last =
        LastStep { spans: Vec::new(), wall: Duration::ZERO, pipeline: None, shared, loss: 0.0 };
    let steps = job.schedule.steps;
    let mut progress =
        StepProgress::new(worker.groups.world.rank(), worker.session.step, steps, shared);
    let (mut record, mut losses) = LossRecord::new(
        job.losses.as_deref().filter(|_| worker.groups.world.rank() == 0),
        worker.session.step,
    )?;
    let tokens = (job.rows * job.config.context) as u64;
    worker.session.timeline.take();
    while worker.session.step < steps {
        let start = worker.session.timeline.now();
        let began = Instant::now();
        let outcome = worker.step(&job.text, job.rows)?;
        let wall = began.elapsed();
        let noted = worker.session.timeline.take();
        let loss = outcome.report.loss;
        let pipeline = worker.gather_trace(&outcome)?;
        // Telling one another is no part of a step.
        worker.session.timeline.take();
        let spans = account(noted, &outcome.trace, &pipeline, start);
        last = LastStep { spans, wall, pipeline: Some(pipeline), shared, loss };
        losses.push(loss);
        record.step(worker.session.step, outcome.report)?;
        progress.step(worker.session.step, loss, tokens, &last.spans, last.wall);
        // Only a scale keeps such a step from the weights: without one there is nothing left to
        // train or to save.
        if !loss.is_finite() && worker.session.scale.is_none() {
            break;
        }
        if job.rebalance.is_some_and(|every| worker.session.step.is_multiple_of(every)) {
            progress.say(worker.session.step, &balance(&worker.rebalance()?));
            worker.session.timeline.take();
        }
        if let Some(folder) = &job.save
            && (worker.session.step.is_multiple_of(job.save_every) || worker.session.step == steps)
        {
            save(&mut worker.session, &worker.groups.world, worker.groups.copies.shard(), folder)?;
        }
    }
    progress.done();
    Ok((losses, last))
}

/// How uneven the ranks of `ep` were by layer, and how even they are where experts moved.
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

/// Bytes and time of every rank, and pictures.
fn report(
    worker: &mut Worker<f32>,
    last: &LastStep,
    job: &TrainingJob,
    losses: &[f64],
    first: u64,
) -> anyhow::Result<()> {
    let world = worker.groups.world.clone();
    let memory = RankMemory::of(&worker.session);
    let numbers: Vec<f64> = last
        .spans
        .iter()
        .flat_map(|span| {
            [span.kind as usize as f64, span.start.as_secs_f64(), span.end.as_secs_f64()]
        })
        .collect();
    let bytes =
        world.gather(&[memory.weights as u64, memory.gradients as u64, memory.optimizer as u64])?;
    let walls = world.gather(&[last.wall.as_secs_f64()])?;
    let lists = world.gather_lists(&numbers)?;
    let load = worker.load()?;
    if world.rank() != 0 {
        return Ok(());
    }
    let ranks: Vec<Vec<TimeSpan>> =
        lists.iter().map(|list| list.chunks_exact(3).map(span).collect()).collect();
    for (rank, (spans, bytes)) in ranks.iter().zip(bytes.chunks_exact(3)).enumerate() {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "rank {rank}: weights {:.2}, gradients {:.2}, optimizer {:.2} MiB; last step {}",
            mib(bytes[0]),
            mib(bytes[1]),
            mib(bytes[2]),
            split(spans, Duration::from_secs_f64(walls[rank]), last.shared)
        );
    }
    if let Some(LossScale { factor, skipped, .. }) = worker.session.scale {
        let steps = worker.session.step;
        println!(
            "{skipped} of {steps} steps overflowed and were skipped; \
             losses are now multiplied by {factor}"
        );
    }
    // There is none right after a move.
    if load.iter().any(|load| *load > 0) {
        let of = |expert| load.iter().skip(expert).step_by(job.config.experts).sum();
        let load: Vec<u64> = (0..job.config.experts).map(of).collect();
        let since = if job.rebalance.is_some() { "the last move" } else { "the start" };
        print!(
            "tokens of all layers by place of an expert, since {since}:\n{}",
            histogram(&load, 40)
        );
    }
    match &job.svg {
        Some(folder) => {
            let shared = if last.shared { "; ranks share cores: time-shared" } else { "" };
            let title = format!("the last step, by rank{shared}");
            draw(folder, &ranks, &title, losses, first)?;
            draw_pipeline(folder, worker, last.pipeline.as_ref())
        }
        None => Ok(()),
    }
}

fn span(numbers: &[f64]) -> TimeSpan {
    let time = |seconds| Duration::from_secs_f64(seconds);
    TimeSpan {
        kind: RankActivity::ALL[numbers[0] as usize],
        start: time(numbers[1]),
        end: time(numbers[2]),
    }
}

fn draw(
    folder: &Path,
    ranks: &[Vec<TimeSpan>],
    title: &str,
    losses: &[f64],
    first: u64,
) -> anyhow::Result<()> {
    outputs::write("--svg", &folder.join("loss.svg"), chart::curve(losses, first + 1, "loss"))?;
    outputs::write("--svg", &folder.join("timeline.svg"), chart::timeline(ranks, title))
}

/// The plan of rank 0's pipeline, if it is one of several stages, with the mean processor time of
/// each operation in the last step: what it would be if nobody shared a core, and messages took no
/// time.
fn draw_pipeline(
    folder: &Path,
    worker: &Worker<f32>,
    measured: Option<&PipelineTrace>,
) -> anyhow::Result<()> {
    let plan = &worker.session.stages.plan;
    let Setup { schedule, .. } = &worker.setup;
    let Some(measured) = measured.filter(|_| plan.ranks > 1) else { return Ok(()) };
    let replay = simulate(plan, measured.costs()).map_err(anyhow::Error::msg)?;
    let title = format!(
        "{}, {} ranks, {} micro-batches, with the measured work of each operation: \
         by formula idle {:.1} %",
        schedule.name(),
        plan.ranks,
        plan.micros,
        100.0 * schedule.idle(plan.ranks, plan.micros)
    );
    outputs::write("--svg", &folder.join("pipeline.svg"), svg(&replay, &title))
}

/// The whole model, trained, on rank 0 alone.
fn alone(worker: &mut Worker<f32>, job: &TrainingJob) -> anyhow::Result<Option<Worker<f32>>> {
    let world = worker.groups.world.clone();
    let weights = whole_weights(&mut worker.session, &world)?;
    if world.rank() != 0 {
        return Ok(None);
    }
    let setup =
        Setup { router: job.setup.router, sharding: Sharding::default(), ..Setup::of(Mesh::ONE) };
    let comm = Communicator::local(1).remove(0);
    let mut alone =
        Worker::<f32>::new(comm, &job.config, setup, job.seed, (job.rule, job.schedule))?;
    alone.session.store.owned()[0].weights.copy_from_slice(&weights);
    Ok(Some(alone))
}

/// What the model has learnt, as a number and as text.
fn finish(session: TrainingSession<f32>, job: &TrainingJob) -> anyhow::Result<()> {
    let TrainingSession { mut gpt, mut store, .. } = session;
    let loss = validation_loss(&mut gpt, &mut *store, &job.held_out)?;
    ensure!(loss.is_finite(), "the validation loss is not a number: {}", remedy(job));
    println!(
        "validation loss {loss:.4} nats a token, on the last tenth of the text, which was held out"
    );
    if job.sample == 0 {
        return Ok(());
    }
    let prompt = job.bpe.encode(b"KING.\n");
    let draw = Sampling { temperature: 0.8, seed: job.seed };
    let tokens = generate(&mut gpt, &mut *store, &prompt, job.sample, draw)?;
    println!("\n{}", String::from_utf8_lossy(&job.bpe.decode(&[prompt, tokens].concat())));
    Ok(())
}
