//! Checkpoints: resumed runs are bitwise the uninterrupted ones, any sharding reads the checkpoints
//! of any other, and no half-written checkpoint is read.

use half::f16;
use maypole::Communicator;
use maypole_lab::averaging::DataForm;
use maypole_lab::compare::{Recipe, TrainingOutcome};
use maypole_lab::export::export;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::checkpoint::history;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::manifest::Manifest;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::{RateSchedule, RateShape};
use maypole_trainer::train::settings::RunRecord;
use maypole_trainer::train::text::DataFingerprint;
use maypole_trainer::train::trainer::Trainer;
use std::fs;
use std::path::{Path, PathBuf};

fn recipe(steps: u64) -> Recipe {
    let schedule = RateSchedule {
        shape: RateShape::Cosine,
        peak: 1e-3,
        warm_up: 2,
        steps: 6,
        ..RateSchedule::default()
    };
    let config = Config { layers: 2, ..Config::default() };
    Recipe { rule: Rule::ADAMW, schedule, steps, config, ..Recipe::default() }
}

/// Runs to step `steps` on `ranks` ranks, from the last checkpoint in `folder` if there is one, and
/// leaves one there.
fn run(recipe: &Recipe, ranks: usize, sharding: Sharding, folder: &Path) -> TrainingOutcome {
    run_as(recipe, ranks, sharding, folder, |_| ())
}

/// The same with a trainer that was prepared.
fn run_as(
    recipe: &Recipe,
    ranks: usize,
    sharding: Sharding,
    folder: &Path,
    prepare: impl Fn(&mut Trainer<f32>) + Sync,
) -> TrainingOutcome {
    let outcomes = Communicator::run_local(ranks, |comm| {
        let mut trainer = recipe.trainer(comm, 1, sharding).unwrap();
        prepare(&mut trainer);
        resume(&mut trainer, folder);
        // A barrier: no rank writes a checkpoint before all ranks have read the last one.
        trainer.groups.world.sum(0.0).unwrap();
        let mut outcome = recipe.follow(&mut trainer, |_, _, _| Ok(())).unwrap();
        save(&mut trainer, folder).unwrap();
        outcome.weights = trainer.parts.store.all_weights().unwrap();
        outcome
    });
    outcomes.into_iter().next().unwrap()
}

fn resume(trainer: &mut Trainer<f32>, folder: &Path) {
    if let Some(place) = history::latest(folder).unwrap() {
        load(trainer, &place).unwrap();
    }
}

fn latest(folder: &Path) -> Option<PathBuf> {
    history::latest(folder).unwrap()
}

const DATA: Sharding = Sharding::Replicated { bucket: Some(25 << 20), overlap: true };
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

#[test]
fn a_resumed_run_is_bitwise_the_uninterrupted_one() {
    crate::skip::takes_turns!(4);
    for sharding in [DATA, Sharding::Zero1, Sharding::Zero2, FSDP] {
        let whole = tempfile::tempdir().unwrap();
        let halves = tempfile::tempdir().unwrap();
        let uninterrupted = run(&recipe(6), 2, sharding, whole.path());
        let first = run(&recipe(3), 2, sharding, halves.path());
        let second = run(&recipe(6), 2, sharding, halves.path());
        assert_eq!(uninterrupted.losses[..3], first.losses, "{sharding:?}");
        assert_eq!(uninterrupted.losses[3..], second.losses, "{sharding:?}");
        assert_eq!(uninterrupted.weights, second.weights, "{sharding:?}");
    }
}

#[test]
fn any_sharding_on_any_number_of_ranks_reads_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let start = run(&recipe(2), 2, DATA, folder.path());
    let first = fs::read(folder.path().join("step-00000002/rank-000.safetensors")).unwrap();
    // Without a step: the checkpoint is read and written again, in other parts.
    for (ranks, sharding) in
        [(4, FSDP), (8, Sharding::Zero2), (1, DATA), (4, Sharding::Zero1), (2, DATA)]
    {
        let outcome = run(&recipe(2), ranks, sharding, folder.path());
        assert_eq!(outcome.weights, start.weights, "{ranks} ranks, {sharding:?}");
        let files = fs::read_dir(folder.path().join("step-00000002")).unwrap().count();
        assert_eq!(files, ranks + 1);
    }
    let last = fs::read(folder.path().join("step-00000002/rank-000.safetensors")).unwrap();
    assert!(first == last, "after five meshes the file is the same, optimizer and all");
}

#[test]
fn training_goes_on_on_another_mesh() {
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    let alone = run(&recipe(6), 1, DATA, here.path());
    run(&recipe(3), 4, FSDP, there.path());
    let moved = run(&recipe(6), 2, Sharding::Zero1, there.path());
    for (moved, alone) in moved.losses.iter().zip(&alone.losses[3..]) {
        assert!((moved - alone).abs() < 1e-5 * alone, "{moved} against {alone}");
    }
}

/// The scale of losses has a state: the number of steps since it last changed.
#[test]
fn a_resumed_run_in_f16_is_bitwise_the_uninterrupted_one() {
    crate::skip::takes_turns!(4);
    for sharding in [DATA, FSDP] {
        let whole = tempfile::tempdir().unwrap();
        let halves = tempfile::tempdir().unwrap();
        let run = |steps: u64, folder: &Path| {
            let recipe = recipe(steps);
            run_as(&recipe, 2, sharding, folder, |trainer| {
                recipe.narrow::<f16>(trainer);
                trainer.parts.clip.scale = Some(LossScale { patience: 2, ..LossScale::default() });
            })
        };
        let uninterrupted = run(6, whole.path());
        let first = run(3, halves.path());
        let second = run(6, halves.path());
        assert_eq!(uninterrupted.losses, [first.losses, second.losses].concat(), "{sharding:?}");
        assert_eq!(uninterrupted.weights, second.weights, "{sharding:?}");
        let [whole, halves] =
            [whole, halves].map(|folder| Manifest::read(&latest(folder.path()).unwrap()).unwrap());
        assert_eq!(whole, halves);
        assert_eq!(
            whole.scale.unwrap().factor,
            8.0 * LossScale::default().factor,
            "it doubled after 2, 4 and 6 steps"
        );
    }
}

#[test]
fn half_written_checkpoints_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    run(&recipe(1), 2, DATA, folder.path());
    let whole = latest(folder.path()).unwrap();
    // A run that was killed while it wrote step 2, and one that was killed before its manifest.
    fs::create_dir(folder.path().join("step-00000002.partial")).unwrap();
    fs::create_dir(folder.path().join("step-00000003")).unwrap();
    assert_eq!(latest(folder.path()).unwrap(), whole);
    let outcome = run(&recipe(2), 2, DATA, folder.path());
    assert_eq!(outcome.losses.len(), 1);
    assert_eq!(latest(folder.path()).unwrap(), folder.path().join("step-00000002"));
}

/// A run that was killed after its manifest was written, and before the folder got its name.
#[test]
fn a_whole_checkpoint_without_its_name_is_read_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let whole = tempfile::tempdir().unwrap();
    let uninterrupted = run(&recipe(4), 2, FSDP, whole.path());
    run(&recipe(2), 2, FSDP, folder.path());
    let [named, unnamed] =
        ["step-00000002", "step-00000002.partial"].map(|name| folder.path().join(name));
    fs::rename(&named, &unnamed).unwrap();
    // What was left of an older one that it was to replace.
    fs::create_dir(&named).unwrap();
    fs::write(named.join("rank-000.safetensors"), "old").unwrap();
    assert_eq!(latest(folder.path()).unwrap(), unnamed);
    let resumed = run(&recipe(4), 2, FSDP, folder.path());
    assert_eq!(resumed.losses, uninterrupted.losses[2..]);
    assert_eq!(resumed.weights, uninterrupted.weights);
    history::CheckpointHistory::read(folder.path()).unwrap().keep_last(1).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "step 4 alone is kept");
}

/// A number of one rank that is not finite, in its weights or in the averages of its optimizer.
#[test]
fn numbers_that_are_not_finite_are_never_saved_and_the_last_good_checkpoint_stays() {
    for (sharding, of_weights) in [(DATA, true), (Sharding::Zero1, false), (FSDP, true)] {
        let folder = tempfile::tempdir().unwrap();
        run(&recipe(1), 2, sharding, folder.path());
        let errors = Communicator::run_local(2, |comm| {
            let mut trainer = recipe(2).trainer(comm, 1, sharding).unwrap();
            resume(&mut trainer, folder.path());
            trainer.step(&recipe(2).text(), 8).unwrap();
            if trainer.groups.world.rank() == 1 {
                if of_weights {
                    let mut owned = trainer.parts.store.local_shards();
                    *owned.last_mut().unwrap().weights.last_mut().unwrap() = f32::INFINITY;
                } else {
                    *trainer.optimizer_mut().second.last_mut().unwrap() = f32::NAN;
                }
            }
            save(&mut trainer, folder.path()).unwrap_err()
        });
        let what = if of_weights { "weights of head" } else { "averages of squares of head" };
        for (rank, error) in errors.iter().enumerate() {
            let own = matches!(error, CheckpointError::NotFinite { .. });
            let told = matches!(error, CheckpointError::Rank { rank: 1, .. });
            assert!(if rank == 1 { own } else { told }, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!((latest(folder.path()), left), (Some(folder.path().join("step-00000001")), 1));
    }
}

#[test]
fn damage_and_other_models_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    run(&recipe(1), 2, DATA, folder.path());
    let place = latest(folder.path()).unwrap();
    let fails = |recipe: &Recipe| load(&mut recipe.alone_on(DATA), &place).unwrap_err();
    let other = Recipe { config: Config { layers: 3, ..recipe(1).config }, ..recipe(1) };
    assert!(matches!(fails(&other), CheckpointError::Other { .. }));
    assert!(matches!(
        fails(&Recipe { rule: Rule::Sgd, ..recipe(1) }),
        CheckpointError::Other { .. }
    ));
    let of = |vocabulary, text| {
        let data = DataFingerprint { vocabulary, text };
        let (bpe, options) = (Bpe::default(), serde_json::Map::new());
        Some(RunRecord { router: None, data, bpe, options })
    };
    let tokens = tempfile::tempdir().unwrap();
    let steps = recipe(1);
    run_as(&steps, 1, DATA, tokens.path(), |trainer| trainer.settings = of(1, 1));
    let mut trainer = steps.alone_on(DATA);
    trainer.settings = of(2, 1);
    let place_of_tokens = latest(tokens.path()).unwrap();
    let error = load(&mut trainer, &place_of_tokens).unwrap_err();
    assert!(
        matches!(error, CheckpointError::Other { .. }),
        "the vocabulary is another one: {error}"
    );
    trainer.settings = of(1, 1);
    assert_eq!(load(&mut trainer, &place_of_tokens).unwrap().settings, of(1, 1));
    trainer.settings = of(1, 2);
    let said = load(&mut trainer, &place_of_tokens).expect("another text may follow").settings;
    assert_eq!(said, of(1, 1), "what the checkpoint says");
    let part = place.join("rank-001.safetensors");
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() - 4]).unwrap();
    assert!(matches!(fails(&recipe(1)), CheckpointError::Damaged { .. }));
    fs::remove_file(&part).unwrap();
    assert!(fails(&recipe(1)).to_string().contains("rank-001.safetensors"));
}

#[test]
fn a_rank_that_cannot_write_stops_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let errors = Communicator::run_local(2, |comm| {
        let mut trainer = recipe(1).trainer(comm, 1, DATA).unwrap();
        // Rank 0 cannot make this folder: there is a file of this name.
        let below = folder.path().join("file");
        fs::write(&below, "").unwrap();
        save(&mut trainer, &below).unwrap_err()
    });
    assert!(
        matches!(
            (&errors[0], &errors[1]),
            (CheckpointError::File { .. }, CheckpointError::Rank { rank: 0, .. })
        ),
        "{errors:?}"
    );
}

#[test]
fn ranks_that_train_apart_cannot_be_saved_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let errors = Communicator::run_local(2, |comm| {
        let mut trainer = recipe(1).trainer(comm, 1, DataForm::Local { every: 2 }).unwrap();
        save(&mut trainer, folder.path()).unwrap_err()
    });
    assert!(errors.iter().all(|error| matches!(error, CheckpointError::Apart)), "{errors:?}");
}

#[test]
fn exported_tensors_have_names_and_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&recipe(1), 4, Sharding::Zero2, folder.path());
    let file = folder.path().join("model.safetensors");
    export(&latest(folder.path()).unwrap(), &file).unwrap();
    let bytes = fs::read(file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("block.1.qkv.weight").unwrap().shape(), [192, 64]);
    let table: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(
        tensors.tensor("embed.token.weight").unwrap().data(),
    );
    assert_eq!(table, outcome.weights[..table.len()]);
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let told = &metadata.metadata().as_ref().unwrap()["config"];
    let expected = r#"{"architecture":"gpt","vocab":256,"context":64,"width":64,"heads":4,"#
        .to_owned()
        + r#""kv_heads":4,"layers":2,"hidden":256,"activation":"gelu_tanh","norm":"layer_norm","#
        + r#""eps":0.00001,"rope_base":null,"tied":false,"experts":0,"experts_per_token":0,"#
        + r#""step":1}"#;
    assert_eq!(*told, expected, "and no merges: the trainer has no settings");
}

#[test]
fn a_vocabulary_that_is_none_is_refused() {
    let settings = |merges: &str| {
        let data = DataFingerprint { vocabulary: 1, text: 1 };
        let bpe = serde_json::from_str(merges).unwrap();
        Some(RunRecord { router: None, data, bpe, options: serde_json::Map::new() })
    };
    for (merges, why) in [
        ("[[97,257]]", "token 256 is made of 97 and 257, which are not before it"),
        ("[[97,98]]", "its merges make 257 tokens, and its model has 256"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        run_as(&recipe(1), 1, DATA, folder.path(), |trainer| trainer.settings = settings(merges));
        let place = latest(folder.path()).unwrap();
        let error = export(&place, &folder.path().join("model")).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
