//! The tour's checks for data parallelism, its shardings, precision and checkpoints.

use crate::averaging::DataForm;
use crate::compare::{Recipe, TrainingOutcome};
use crate::replicas::SumFirst;
use crate::tour::TourSettings;
use crate::tour::meshes::{MeshCheck, RankResult};
use crate::tour::row::TourRow;
use half::{bf16, f16};
use maypole::Communicator;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::checkpoint::history::latest;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use std::time::Instant;

const DATA: Sharding = Sharding::Replicated { bucket: Some(100_000), overlap: true };
const LATE: Sharding = Sharding::Replicated { bucket: Some(4_000), overlap: false };
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

/// The steps by which sums of the row on stale sums are late.
const LATE_STEPS: u64 = 2;
/// The greatest difference where sums are in another order.
const CLOSE: f64 = 1e-6;

/// The checks of data parallelism.
pub(crate) fn checks() -> Vec<MeshCheck> {
    let micros =
        |check: MeshCheck| MeshCheck { setup: Parallelism { micros: 2, ..check.setup }, ..check };
    let plain = |check: MeshCheck| MeshCheck {
        recipe: Recipe { rule: Rule::Sgd, schedule: RateSchedule::constant(0.1), ..check.recipe },
        bound: CLOSE,
        ..check
    };
    let bf16 = |check| MeshCheck { narrow: Some(Recipe::narrow::<bf16>), bound: 3e-4, ..check };
    let f16 = |check: MeshCheck| MeshCheck {
        narrow: Some(Recipe::narrow::<f16>),
        bound: 5e-5,
        recipe: Recipe { scale: true, ..check.recipe },
        ..check
    };
    let clipped = |check: MeshCheck| MeshCheck {
        recipe: Recipe { clip: Some(0.5), ..check.recipe },
        ..check
    };
    let recomputed = |check: MeshCheck| MeshCheck {
        recipe: Recipe { recompute: true, ..check.recipe },
        ..check
    };
    vec![
        check("data, sums overlapped", 2, DATA),
        check("data, sums afterwards", 2, LATE),
        micros(check("micro-batches", 2, DATA)),
        check("ZeRO-1", 2, Sharding::Zero1),
        check("ZeRO-2", 2, Sharding::Zero2),
        micros(check("ZeRO-2, micro-batches", 2, Sharding::Zero2)),
        check("ZeRO-3 (FSDP)", 2, FSDP),
        check("ZeRO-3 (FSDP)", 4, FSDP),
        clipped(plain(check("ZeRO-3, clipped", 2, FSDP))),
        plain(check("local SGD, each step", 2, DataForm::Local { every: 1 })),
        check("DiLoCo", 2, DataForm::Diloco { every: 5 }),
        check("gossip on a ring", 4, DataForm::Gossip { every: 2 }),
        check("stale sums", 2, DataForm::Stale { late: LATE_STEPS }),
        recomputed(check("recomputed activations", 1, DATA)),
        bf16(check("bf16", 2, DATA)),
        bf16(check("bf16, ZeRO-1", 2, Sharding::Zero1)),
        bf16(check("bf16, ZeRO-3", 2, FSDP)),
        f16(check("f16, scaled loss", 2, DATA)),
    ]
}

pub(super) fn check(axis: &'static str, ranks: usize, form: impl Into<DataForm>) -> MeshCheck {
    let form = form.into();
    let (sharding, order) = (form.sharding(), SumOrder::Ranks);
    let recipe = Recipe {
        rule: Rule::ADAMW,
        schedule: RateSchedule::constant(1e-3),
        averaging: Some(form),
        ..Recipe::default()
    };
    let setup = Parallelism { sharding, order, ..Parallelism::of(Mesh::replicas(ranks)) };
    MeshCheck {
        axis,
        recipe,
        setup,
        bound: 0.0,
        also: None,
        plant: None,
        narrow: None,
        copies_state: false,
    }
}

/// Trains half of the steps and saves a checkpoint. Another mesh loads it and saves it again. The first
/// mesh loads that checkpoint and trains the other half.
pub(crate) fn resharded(axis: &'static str, settings: &TourSettings) -> TourRow {
    let mut shown = check(axis, 2, Sharding::Zero1);
    shown.recipe.devices = settings.devices.clone();
    let half = settings.steps.map_or(4, |steps| steps.div_ceil(2));
    let [half, whole] = [half, 2 * half].map(|steps| Recipe { steps, ..shown.recipe.clone() });
    let folder = std::env::temp_dir().join(format!("maypole-tour-{}", std::process::id()));
    let start = Instant::now();
    let load_and_train = |ranks, form: Sharding, recipe: &Recipe| -> Vec<RankResult> {
        Communicator::run_local(ranks, |comm| {
            let trainer = recipe.trainer(comm, 1, form);
            let mut trainer = trainer.expect("all ranks call the same");
            let last = latest(&folder).expect("the folder for temporary files is readable");
            if let Some(place) = last {
                load(&mut trainer, &place).expect("it was written just now");
            }
            // A barrier: no rank writes before all ranks have read.
            trainer.groups.world.sum(0.0).expect("all ranks are here");
            let seen = RankResult::of(recipe, &mut trainer).expect("all ranks call the same");
            save(&mut trainer, &folder).expect("the folder for temporary files is writable");
            seen
        })
    };
    let first = load_and_train(2, Sharding::Zero1, &half).swap_remove(0).outcome;
    load_and_train(4, FSDP, &half);
    let seen = load_and_train(2, Sharding::Zero1, &whole);
    let seconds = start.elapsed().as_secs_f64();
    // If removing fails, the files stay in the system's folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    let last = &seen[0].outcome;
    let losses = [&*first.losses, &*last.losses].concat();
    let alone = whole.alone(2, 1, SumFirst::MicroBatches);
    let difference = TrainingOutcome { losses, ..last.clone() }.difference(&alone);
    TourRow {
        mesh: "dp=2, 4, 2".to_owned(),
        ranks: 4,
        criterion: "bitwise".to_owned(),
        difference: difference.loss.max(difference.weights),
        pass: difference.bitwise && shown.is_exact(&seen),
        ..shown.row(seen.first(), seconds)
    }
}
