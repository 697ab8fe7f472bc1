//! The tour's checks for data parallelism, its shardings, precision and checkpoints.

use crate::averaging::DataForm;
use crate::compare::{Recipe, TrainingOutcome};
use crate::memory::{FULL, wire};
use crate::overlap::{ObservedStore, OverlappedPasses, PassCounter};
use crate::replicas::SumFirst;
use crate::tour::criterion::Criterion;
use crate::tour::measure::StepMeasure;
use crate::tour::row::TourRow;
use crate::tour::{AxisCheck, CheckKind, TourSettings, survivors};
use half::{bf16, f16};
use maypole::Communicator;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::train::checkpoint::history::latest;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use std::time::Instant;

const DATA: Sharding = Sharding::Replicated { bucket: Some(100_000), overlap: true };
const LATE: Sharding = Sharding::Replicated { bucket: Some(4_000), overlap: false };
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

/// The steps by which sums of the row on stale sums are late.
const LATE_STEPS: u64 = 2;

/// The checks of data parallelism.
pub(crate) fn checks() -> Vec<AxisCheck> {
    let micros = |check| DataParallelCheck { micro: 2, ..check };
    let plain = |check| DataParallelCheck { rule: Rule::Sgd, ..check };
    let bf16 = |check| DataParallelCheck { narrow: Some(Recipe::narrow::<bf16>), ..check };
    let f16 = |check| DataParallelCheck { narrow: Some(Recipe::narrow::<f16>), ..check };
    let (zero1, zero2) = (Sharding::Zero1.into(), Sharding::Zero2.into());
    let (data, late, fsdp) = (DATA.into(), LATE.into(), FSDP.into());
    let rows = [
        check("data, sums overlapped", 2, data),
        check("data, sums afterwards", 2, late),
        micros(check("micro-batches", 2, data)),
        check("ZeRO-1", 2, zero1),
        check("ZeRO-2", 2, zero2),
        micros(check("ZeRO-2, micro-batches", 2, zero2)),
        check("ZeRO-3 (FSDP)", 2, fsdp),
        check("ZeRO-3 (FSDP)", 4, fsdp),
        DataParallelCheck { clip: true, ..plain(check("ZeRO-3, clipped", 2, fsdp)) },
        plain(check("local SGD, each step", 2, DataForm::Local { every: 1 })),
        check("DiLoCo", 2, DataForm::Diloco { every: 5 }),
        check("gossip on a ring", 4, DataForm::Gossip { every: 2 }),
        check("stale sums", 2, DataForm::Stale { late: LATE_STEPS }),
        DataParallelCheck { recompute: true, ..check("recomputed activations", 1, data) },
        bf16(check("bf16", 2, data)),
        bf16(check("bf16, ZeRO-1", 2, zero1)),
        bf16(check("bf16, ZeRO-3", 2, fsdp)),
        f16(check("f16, scaled loss", 2, data)),
    ];
    let rows = rows.map(|check| AxisCheck { axis: check.axis, show: CheckKind::Data(check) });
    let own = |axis, show| AxisCheck { axis, show: CheckKind::Own(show) };
    let others = [
        own("checkpoint, there and back", resharded),
        own("without a rank that died", survivors::without_a_rank),
        own("a rank comes again", survivors::again),
    ];
    rows.into_iter().chain(others).collect()
}

/// Makes a trainer train in 16 bits.
type NarrowTrainer = fn(&Recipe, &mut Trainer<f32>);

/// Passes and traffic before the first step, which later counts are compared with.
type Before = (PassCounter, Traffic);

/// The configuration of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataParallelCheck {
    axis: &'static str,
    ranks: usize,
    micro: usize,
    form: DataForm,
    rule: Rule,
    clip: bool,
    recompute: bool,
    narrow: Option<NarrowTrainer>,
}

impl DataParallelCheck {
    fn recipe(&self, settings: &TourSettings) -> Recipe {
        let (schedule, steps) = match self.rule {
            Rule::Sgd => (RateSchedule::constant(0.1), 20),
            Rule::AdamW { .. } => (RateSchedule::constant(1e-3), 10),
        };
        Recipe {
            rule: self.rule,
            schedule,
            clip: self.clip.then_some(0.5),
            scale: self.scaled(),
            recompute: self.recompute,
            devices: settings.devices.clone(),
            steps: self.whole_rounds(settings.steps.unwrap_or(steps)),
            ..Recipe::default()
        }
    }

    /// At least so many steps: up to the end of a round of averaging, and with sums that arrive.
    fn whole_rounds(&self, steps: u64) -> u64 {
        match self.form {
            DataForm::Diloco { every } | DataForm::Gossip { every } => {
                steps.next_multiple_of(every)
            }
            DataForm::Stale { late } => steps.max(2 * late),
            _ => steps,
        }
    }

    /// The same algorithm in one process.
    fn reference(&self, recipe: &Recipe, first: SumFirst) -> TrainingOutcome {
        let Self { ranks, micro, .. } = *self;
        match self.form {
            DataForm::Diloco { every } => recipe.diloco_alone(ranks, every),
            DataForm::Gossip { every } => recipe.gossip_alone(ranks, every),
            DataForm::Stale { late } => recipe.stale_alone(ranks, late as usize),
            _ => recipe.alone(ranks, micro, first),
        }
    }

    /// The bounds of 16 bits are those of ten steps, after which a master that is rounded to bf16 in
    /// each of them is 1e-3 off. Rounding grows faster than the steps, and more of them have a wide
    /// bound.
    fn criterion(&self, steps: u64) -> Criterion {
        let bound = |of_ten| if steps <= 10 { of_ten } else { 1e-2 };
        match self.form {
            _ if self.scaled() => Criterion::Loss(bound(5e-5)),
            _ if self.narrow.is_some() => Criterion::Loss(bound(3e-4)),
            DataForm::Local { .. } => Criterion::Close,
            _ if self.clip => Criterion::Close,
            _ => Criterion::Bitwise,
        }
    }

    /// True if the loss is scaled. Each step then sums the norm too.
    fn scaled(&self) -> bool {
        self.axis.starts_with("f16")
    }

    pub(crate) fn row(self, settings: &TourSettings) -> TourRow {
        let recipe = self.recipe(settings);
        let criterion = self.criterion(recipe.steps);
        let first = match self.form.sharding() {
            Sharding::Zero2 | Sharding::Fsdp { .. } => SumFirst::Ranks,
            _ => SumFirst::MicroBatches,
        };
        let start = Instant::now();
        let prepare = |trainer: &mut Trainer<f32>| {
            if let Some(narrow) = self.narrow {
                narrow(&recipe, trainer);
            }
            settings.plant.map_or(Ok(()), |plant| plant(trainer)).expect("all ranks call the same");
            begin_to_measure(trainer)
        };
        let begun = u64::from(self.form.is_late());
        let look = measure_rank(&recipe, begun);
        let (outcomes, seen) = recipe.watched((self.ranks, self.micro), self.form, prepare, look);
        let seconds = start.elapsed().as_secs_f64();
        let (difference, equal) = criterion.compare_all(&outcomes, &self.reference(&recipe, first));
        let parameters = recipe.config.parameters();
        // Besides the gradients each step sums the loss, and the norm if there is one of all ranks.
        let told = 1 + usize::from(!self.form.diverges());
        let numbers = wire(self.form, parameters, self.ranks, self.micro);
        let sent = self.width() as f64 * numbers.weights + FULL as f64 * numbers.gradients;
        let sent_a_step = sent + (8 * told * (self.ranks - 1)) as f64;
        let theory = self.theory(&recipe);
        let (first, sent) = seen[0];
        // Averages of several steps are no whole bytes a step.
        let all_sent = (recipe.steps as f64 * sent_a_step).round() as u64;
        let exact = exact(&seen, theory, all_sent);
        TourRow {
            criterion: criterion.name(),
            bound: criterion.bound(),
            difference,
            pass: equal && exact,
            ..TourRow::new(
                self.axis,
                format!("dp={}", self.ranks),
                self.ranks,
                [first, theory],
                [sent as f64 / recipe.steps as f64, sent_a_step].map(|sent| sent.round() as u64),
                seconds,
            )
        }
    }

    /// Bytes of a weight.
    fn width(&self) -> usize {
        if self.narrow.is_some() { 2 } else { FULL }
    }

    /// What each rank should hold and overlap. The ranks divide each unit of the tour's model
    /// evenly, so theory is the same for all ranks.
    fn theory(&self, recipe: &Recipe) -> StepMeasure {
        let Self { ranks, micro: micros, form, .. } = *self;
        let mesh = Mesh::replicas(ranks);
        let setup = Parallelism { sharding: form.sharding(), micros, ..Parallelism::of(mesh) };
        let site = recipe.site(&setup, mesh.place(0));
        let states = (form, self.rule.states());
        let mixed = self.narrow.is_some();
        let mut theory = StepMeasure::theory(&site, states, mixed, &RoutingRecord::default());
        // The last step averages: DiLoCo makes the change of all weights, gossip receives weights.
        if matches!(form, DataForm::Diloco { .. } | DataForm::Gossip { .. }) {
            theory.units += FULL * site.parameters();
        }
        theory
    }
}

fn check(axis: &'static str, ranks: usize, form: DataForm) -> DataParallelCheck {
    DataParallelCheck {
        axis,
        ranks,
        micro: 1,
        form,
        rule: Rule::ADAMW,
        clip: false,
        recompute: false,
        narrow: None,
    }
}

/// What a rank held in its last step, and the bytes that it has sent. In the first `begun` steps no
/// pass overlaps a collective that does so later.
fn measure_rank(
    recipe: &Recipe,
    begun: u64,
) -> impl Fn(&mut Trainer<f32>, Before) -> (StepMeasure, u64) + Sync {
    let steps = recipe.steps.max(1);
    move |trainer, (passes, sent)| {
        // Every step has the same passes.
        let OverlappedPasses { overlapped, all } = passes.get();
        let overlapped = overlapped / (steps - begun).max(1);
        let passes = OverlappedPasses { overlapped, all: all / steps };
        (StepMeasure::of(trainer, passes), trainer.sent().since(sent).total())
    }
}

/// From now on counts passes and bytes sent.
fn begin_to_measure(trainer: &mut Trainer<f32>) -> Before {
    let timeline = trainer.watch.timeline.clone();
    let passes = ObservedStore::wrap(&mut trainer.parts.store, &timeline);
    (passes, trainer.sent())
}

/// True if every rank fits `theory` and sends `sent` bytes exactly.
fn exact(seen: &[(StepMeasure, u64)], theory: StepMeasure, sent: u64) -> bool {
    seen.iter().all(|seen| seen.0.fits(&theory) && seen.1 == sent)
}

/// Trains half of the steps and saves a checkpoint. Another mesh loads it and saves it again. The first
/// mesh loads that checkpoint and trains the other half.
fn resharded(axis: &'static str, settings: &TourSettings) -> TourRow {
    let shown = check(axis, 2, Sharding::Zero1.into());
    let half = settings.steps.map_or(4, |steps| steps.div_ceil(2));
    let [half, whole] = [half, 2 * half].map(|steps| Recipe { steps, ..shown.recipe(settings) });
    let folder = std::env::temp_dir().join(format!("maypole-tour-{}", std::process::id()));
    let start = Instant::now();
    let load_and_train = |ranks, form: DataForm, recipe: &Recipe| {
        let outcomes = Communicator::run_local(ranks, |comm| {
            let trainer = recipe.trainer(comm, 1, form);
            let mut trainer = trainer.expect("all ranks call the same");
            let last = latest(&folder).expect("the folder for temporary files is readable");
            if let Some(place) = last {
                load(&mut trainer, &place).expect("it was written just now");
            }
            // A barrier: no rank writes before all ranks have read.
            trainer.groups.world.sum(0.0).expect("all ranks are here");
            let before = begin_to_measure(&mut trainer);
            let first = trainer.step;
            let mut outcome =
                recipe.follow(&mut trainer, |_, _, _| Ok(())).expect("all ranks call the same");
            let done = Recipe { steps: recipe.steps - first, ..recipe.clone() };
            let (step, sent) = measure_rank(&done, 0)(&mut trainer, before);
            save(&mut trainer, &folder).expect("the folder for temporary files is writable");
            outcome.weights = trainer.parts.store.all_weights().expect("all ranks call the same");
            (outcome, (step, sent))
        });
        let (mut outcomes, seen): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
        (outcomes.swap_remove(0), seen)
    };
    let first = load_and_train(2, shown.form, &half).0;
    load_and_train(4, FSDP.into(), &half);
    let (last, seen) = load_and_train(2, shown.form, &whole);
    let seconds = start.elapsed().as_secs_f64();
    // If removing fails, the files stay in the system's folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    let losses = [first.losses, last.losses].concat();
    let alone = whole.alone(2, 1, SumFirst::MicroBatches);
    let (difference, equal) =
        Criterion::Bitwise.compare(&TrainingOutcome { losses, ..last }, &alone);
    let parameters = whole.config.parameters();
    let theory = shown.theory(&whole);
    // A step sends gradients, weights, and the loss (8 bytes).
    let sent_a_step = FULL as u64 * wire(shown.form, parameters, 2, 1).all() as u64 + 16;
    let (step, sent) = seen[0];
    TourRow {
        criterion: Criterion::Bitwise.name(),
        difference,
        pass: equal && exact(&seen, theory, half.steps * sent_a_step),
        ..TourRow::new(
            axis,
            "dp=2, 4, 2".to_owned(),
            4,
            [step, theory],
            [sent / half.steps, sent_a_step],
            seconds,
        )
    }
}
