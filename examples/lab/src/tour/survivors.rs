//! The tour's rows of ranks that die, and of a rank that is replaced.
//!
//! What it does: ranks train under ZeRO-1, one of them leaves in the middle, and the others continue. The
//! losses and weights are compared, to the bit, with one process that adds gradients in the order of
//! the ranks of each step. So a lost or outdated number of the optimizer
//! fails the row. The bytes are those of the last step, in which two ranks train.
//! What is sharded, which collective runs where, cost: in [`survivors`](crate::survivors).

use crate::compare::{Recipe, TrainingOutcome};
use crate::memory::{FULL, wire};
use crate::overlap::ObservedStore;
use crate::replicas::SumFirst;
use crate::survivors::keeper::keep_states;
use crate::survivors::kept::RecoveryError;
use crate::survivors::recovery::Survivors;
use crate::tour::measure::StepMeasure;
use crate::tour::row::TourRow;
use crate::tour::{Plant, TourSettings};
use maypole::world::bootstrap::JoinConfig;
use maypole::{Admissions, Communicator, Transport};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const FORM: Sharding = Sharding::Zero1;
/// Ranks of the last step.
const LAST: usize = 2;
/// Rows of a batch: two and three ranks divide them evenly.
const ROWS: usize = 6;
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, RecoveryError>;

/// A training of which ranks die.
struct MortalRun {
    recipe: Recipe,
    /// The steps before the first death, and before the second change.
    first: u64,
    second: u64,
    plant: Option<Plant>,
}

/// What a rank saw that was there at the end.
struct Seen {
    outcome: TrainingOutcome,
    step: StepMeasure,
    sent: u64,
}

impl MortalRun {
    fn new(settings: &TourSettings) -> Self {
        let steps = settings.steps.unwrap_or(10).max(3);
        let recipe = Recipe {
            rule: Rule::ADAMW,
            schedule: RateSchedule::constant(1e-3),
            devices: settings.devices.clone(),
            rows: ROWS,
            steps,
            ..Recipe::default()
        };
        let plant = settings.plant;
        Self { recipe, first: steps.div_ceil(3), second: (2 * steps).div_ceil(3), plant }
    }

    fn trainer(&self, comm: Communicator) -> maypole::Result<Trainer<f32>> {
        let mut trainer = self.recipe.trainer(comm, 1, FORM)?;
        self.plant.map_or(Ok(()), |plant| plant(&mut trainer))?;
        Ok(trainer)
    }

    fn begin(&self, mut comm: Communicator) -> Outcome<(Survivors, Trainer<f32>)> {
        comm.set_timeout(PATIENCE);
        let survivors = Survivors::new(&mut comm)?;
        let mut trainer = self.trainer(comm)?;
        keep_states(&mut trainer, None)?;
        Ok((survivors, trainer))
    }

    fn go_on(&self, survivors: &mut Survivors, trainer: Trainer<f32>) -> Outcome<Trainer<f32>> {
        Ok(survivors.go_on(trainer, |comm| self.trainer(comm))?.trainer)
    }

    fn train(&self, trainer: &mut Trainer<f32>, end: u64, losses: &mut Vec<f64>) -> Outcome<()> {
        let text = self.recipe.text();
        while trainer.step < end {
            losses.push(trainer.step(&text, ROWS)?.report.loss);
        }
        Ok(())
    }

    /// Notices that a rank has gone: a step fails.
    fn notice(&self, trainer: &mut Trainer<f32>, text: &Text) {
        let failed = trainer.step(text, ROWS).is_err();
        assert!(failed, "a step succeeds without a rank that has gone");
    }

    /// Trains to the end, and measures the last step.
    fn end(&self, mut trainer: Trainer<f32>, mut losses: Vec<f64>) -> Outcome<Seen> {
        let steps = self.recipe.steps;
        self.train(&mut trainer, steps - 1, &mut losses)?;
        let timeline = trainer.watch.timeline.clone();
        let passes = ObservedStore::wrap(&mut trainer.parts.store, &timeline);
        let before = trainer.sent();
        self.train(&mut trainer, steps, &mut losses)?;
        let sent = trainer.sent().since(before).total();
        let step = StepMeasure::of(&trainer, passes.get());
        let weights = trainer.parts.store.all_weights()?;
        let layout = trainer.parts.store.layout().clone();
        Ok(Seen { outcome: TrainingOutcome::new(layout, losses, weights), step, sent })
    }

    /// What each rank of the last step should hold and send.
    fn theory(&self) -> (StepMeasure, u64) {
        let mesh = Mesh::ONE.with(MeshAxis::Dp, LAST);
        let setup = Parallelism { sharding: FORM, ..Parallelism::of(mesh) };
        let site = self.recipe.site(&setup, mesh.place(0));
        let states = (FORM.into(), self.recipe.rule.states());
        let mut step = StepMeasure::theory(&site, states, false, &RoutingRecord::default());
        // Keeping the state reads each unit once more.
        let layout = site.layout();
        step.passes.all += layout.units.len() as u64;
        // Gradients of the own part go to the rank that has the copy, norms and losses to all.
        let numbers = wire(FORM, layout.len(), LAST, 1).all() + (layout.len() / LAST) as f64;
        (step, (FULL as f64 * numbers) as u64 + 16 * (LAST as u64 - 1))
    }

    /// The row of the results `seen` of the ranks, with `worlds` ranks until these steps. If a rank could
    /// not continue, the row fails.
    fn row(
        &self,
        axis: &str,
        worlds: &[(usize, u64)],
        seen: Outcome<Vec<Seen>>,
        seconds: f64,
    ) -> TourRow {
        let (theory, sent) = self.theory();
        let mesh: Vec<String> = worlds.iter().map(|(ranks, _)| ranks.to_string()).collect();
        let mesh = format!("dp={}", mesh.join(", "));
        let ranks = worlds.iter().map(|world| world.0).max().unwrap_or(0);
        let row = |held, own| {
            let row = TourRow::new(axis, mesh, ranks, [held, theory], [own, sent], seconds);
            TourRow { criterion: "bitwise".to_owned(), ..row }
        };
        let Ok(seen) = seen else { return row(theory, 0) };
        let alone = self.recipe.alone_in(worlds, 1, SumFirst::MicroBatches);
        let differences = seen.iter().map(|rank| rank.outcome.difference(&alone));
        let differences: Vec<_> = differences.collect();
        let difference =
            differences.iter().map(|all| all.loss.max(all.weights)).fold(0.0, f64::max);
        let equal = differences.iter().all(|all| all.bitwise) && seen.len() == LAST;
        let fits = |rank: &Seen| rank.step.fits(&theory) && rank.sent == sent;
        let pass = equal && seen.iter().all(fits);
        TourRow { difference, pass, ..row(seen[0].step, seen[0].sent) }
    }
}

/// One of three ranks dies, and two continue.
pub(crate) fn without_a_rank(axis: &'static str, settings: &TourSettings) -> TourRow {
    let run = MortalRun::new(settings);
    let start = Instant::now();
    let rank = |comm: Communicator| -> Outcome<Option<Seen>> {
        let dies = comm.rank() == 1;
        let (mut survivors, mut trainer) = run.begin(comm)?;
        let mut losses = Vec::new();
        run.train(&mut trainer, run.first, &mut losses)?;
        if dies {
            return Ok(None);
        }
        run.notice(&mut trainer, &run.recipe.text());
        let trainer = run.go_on(&mut survivors, trainer)?;
        run.end(trainer, losses).map(Some)
    };
    let seen = Communicator::run_local(3, rank).into_iter();
    let seen = seen.filter_map(Outcome::transpose).collect();
    let worlds = [(3, run.first), (2, run.recipe.steps)];
    run.row(axis, &worlds, seen, start.elapsed().as_secs_f64())
}

/// One of two ranks dies, the other continues alone, and a third process replaces the first.
/// The ranks are threads, joined over TCP as processes are.
pub(crate) fn again(axis: &'static str, settings: &TourSettings) -> TourRow {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let job = format!("tour-{}-{number}", std::process::id());
    let at = |rank| {
        let mut config = JoinConfig::new(rank, LAST, "127.0.0.1").with_job(&job);
        (config.join_timeout, config.timeout) = (PATIENCE, PATIENCE);
        config
    };
    let run = &MortalRun::new(settings);
    let join = |rank| Ok::<_, RecoveryError>(Communicator::join(at(rank), Transport::Tcp)?);
    let dies = || -> Outcome<()> {
        let (_survivors, mut trainer) = run.begin(join(1)?)?;
        run.train(&mut trainer, run.first, &mut Vec::new())
    };
    let stays = || -> Outcome<Seen> {
        let (survivors, mut trainer) = run.begin(join(0)?)?;
        let mut survivors = survivors.replaced_by(Some(Admissions::new(at(0))));
        let mut losses = Vec::new();
        run.train(&mut trainer, run.first, &mut losses)?;
        run.notice(&mut trainer, &run.recipe.text());
        trainer = run.go_on(&mut survivors, trainer)?;
        run.train(&mut trainer, run.second, &mut losses)?;
        let deadline = Instant::now() + PATIENCE;
        while !survivors.admit()? {
            assert!(Instant::now() < deadline, "nobody comes");
        }
        let trainer = run.go_on(&mut survivors, trainer)?;
        run.end(trainer, losses)
    };
    let comes = || -> Outcome<Seen> {
        let comm = Communicator::enter(at(1))?;
        let entering = (comm, Admissions::new(at(1)));
        let (_survivors, recovered) =
            Survivors::enter(entering, (1, LAST), |comm| run.trainer(comm))?;
        run.end(recovered.trainer, Vec::new())
    };
    let start = Instant::now();
    let (stayed, came) = std::thread::scope(|threads| {
        let others = (threads.spawn(dies), threads.spawn(comes));
        let stayed = stays();
        others.0.join().expect("it does not panic").expect("it dies after its last step");
        (stayed, others.1.join().expect("it does not panic"))
    });
    // The newcomer has not seen the losses before it came.
    let before = run.second as usize;
    let both = stayed.and_then(|stayed| came.map(|came| (stayed, came)));
    let seen = both.map(|(stayed, mut came)| {
        came.outcome.losses.splice(0..0, stayed.outcome.losses[..before].iter().copied());
        vec![stayed, came]
    });
    let worlds = [(2, run.first), (1, run.second), (2, run.recipe.steps)];
    run.row(axis, &worlds, seen, start.elapsed().as_secs_f64())
}
