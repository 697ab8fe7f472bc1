//! From any mesh to any other: a checkpoint has the same weights and the same optimizer on all of
//! them, to the bit, and training continues at the same step.

use crate::support::{Recipe, alone, mesh, router, small, with_experts};
use half::bf16;
use maypole::Communicator;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::train::checkpoint::history::latest;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer_kernels::counting;
use std::fs;
use std::path::Path;

const ROWS: usize = 8;
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

/// Trains on the mesh of `setup` until `steps` steps are done, from the checkpoint in `from` if
/// there is one, and leaves one in `to`. Returns the losses.
fn train(config: &Config, setup: &Parallelism, steps: u64, from: &Path, to: &Path) -> Vec<f64> {
    train_as(|_| (), config, setup, steps, from, to)
}

/// The same, after `prepare`.
fn train_as(
    prepare: fn(&mut Trainer<f32>),
    config: &Config,
    setup: &Parallelism,
    steps: u64,
    from: &Path,
    to: &Path,
) -> Vec<f64> {
    setup.check(config, ROWS).unwrap();
    let schedule = RateSchedule::constant(1e-3);
    let (rule, clip, rows) = (Rule::ADAMW, Some(1.0), ROWS);
    let recipe = Recipe { config: config.clone(), rule, schedule, clip, rows, steps, ..small() };
    let rank = |comm: Communicator| {
        let mut trainer = recipe.rank(comm, setup).unwrap();
        prepare(&mut trainer);
        if let Some(place) = latest(from).unwrap() {
            load(&mut trainer, &place).unwrap();
        }
        let run = recipe.follow(&mut trainer, |_, _, _| Ok(())).unwrap();
        save(&mut trainer, to).unwrap();
        run.losses
    };
    Communicator::run_local(setup.mesh.world(), rank).swap_remove(0)
}

/// The state in the checkpoint in `from`, in the one form that it has on one rank: weights and both
/// averages, in the order of the whole model.
fn state(config: &Config, setup: &Parallelism, from: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    train(config, &alone(setup), 0, from, folder.path());
    first_part(folder.path())
}

fn first_part(folder: &Path) -> Vec<u8> {
    fs::read(latest(folder).unwrap().unwrap().join("rank-000.safetensors")).unwrap()
}

/// All ways to divide a dense model, on one to eight ranks.
fn dense() -> Vec<Parallelism> {
    let with = |text: &str, sharding| Parallelism { sharding, ..mesh(text) };
    vec![
        Parallelism::default(),
        mesh("dp=2"),
        mesh("tp=2"),
        mesh("pp=2"),
        with("dp=4", Sharding::Zero1),
        with("dp=2", FSDP),
        mesh("dp=2,tp=2"),
        Parallelism { sequence: true, ..mesh("tp=4") },
        Parallelism { schedule: PipelineSchedule::Interleaved(2), micros: 2, ..mesh("pp=2,tp=2") },
        Parallelism { exchange: ContextExchange::Ulysses, ..mesh("cp=2") },
        with("dp=2,cp=2", Sharding::Zero2),
        Parallelism { micros: 2, ..with("dp=2,pp=2,tp=2", FSDP) },
    ]
}

/// The same for a model of four experts.
fn experts() -> Vec<Parallelism> {
    let fsdp = Parallelism { sharding: FSDP, ..mesh("dp=2,ep=2") };
    let setups = [
        Parallelism::default(),
        mesh("ep=2"),
        mesh("ep=4"),
        fsdp,
        mesh("ep=2,tp=2"),
        mesh("pp=2,ep=2,cp=2"),
    ];
    setups.into_iter().map(|setup| Parallelism { router: Some(router(4)), ..setup }).collect()
}

fn every_pair(config: &Config, setups: &[Parallelism]) {
    for from in setups {
        let here = tempfile::tempdir().unwrap();
        train(config, from, 2, here.path(), here.path());
        let before = state(config, from, here.path());
        assert!(
            from.mesh.world() > 1 || before == first_part(here.path()),
            "one rank reads what it wrote itself"
        );
        for to in setups {
            let there = tempfile::tempdir().unwrap();
            // Without a step: the checkpoint is read and written again, in other parts.
            train(config, to, 0, here.path(), there.path());
            let files = fs::read_dir(latest(there.path()).unwrap().unwrap()).unwrap().count();
            assert_eq!(files, to.mesh.world() + 1, "a part a rank, and the manifest");
            let what =
                format!("from {} {:?} to {} {:?}", from.mesh, from.sharding, to.mesh, to.sharding);
            assert!(state(config, to, there.path()) == before, "{what}: another state");
        }
    }
}

#[test]
fn any_mesh_reads_what_any_other_wrote_to_the_bit() {
    crate::skip::takes_turns!(4);
    every_pair(&small().config, &dense());
    every_pair(&with_experts(small(), 4).config, &experts());
}

/// One step on each mesh, from the checkpoint of the mesh before, compared with as many steps in
/// one process.
fn journey(config: &Config, setups: &[Parallelism]) {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    let steps = setups.len() as u64;
    let reference = train(config, &alone(&setups[0]), steps, nowhere.path(), nowhere.path());
    for (step, (setup, expected)) in (1..).zip(setups.iter().zip(reference)) {
        let loss = train(config, setup, step, folder.path(), folder.path())[0];
        assert!(
            (loss - expected).abs() < 1e-5 * expected,
            "step {step} on {}: {loss}, not {expected}",
            setup.mesh
        );
    }
}

#[test]
fn any_mesh_reads_a_llama_that_any_other_wrote_to_the_bit() {
    let architecture = Architecture::Llama { kv_heads: 2 };
    let config = Config { architecture, ..small().config };
    let fsdp = Parallelism { sharding: FSDP, ..mesh("dp=2") };
    let setups = [Parallelism::default(), mesh("tp=2"), mesh("pp=2"), fsdp, mesh("dp=2,tp=2")];
    every_pair(&config, &setups);
    journey(&config, &setups);
}

#[test]
fn training_goes_on_over_all_meshes_as_in_one_process() {
    journey(&small().config, &dense());
    journey(&with_experts(small(), 4).config, &experts());
    // Eight ranks, one, four.
    let many =
        ["dp=2,pp=2,tp=2", "", "dp=2,tp=2"].map(|text| Parallelism { micros: 2, ..mesh(text) });
    journey(&Config { layers: 2, ..Config::default() }, &many);
}

#[test]
fn masters_are_saved_and_move_from_mesh_to_mesh() {
    let config = small().config;
    let narrow = (|trainer| trainer.narrow::<bf16>(7).unwrap()) as fn(&mut Trainer<f32>);
    let [first, last, whole] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let zero1 = Parallelism { sharding: Sharding::Zero1, ..mesh("dp=2") };
    let fsdp = Parallelism { sharding: FSDP, ..mesh("dp=2,tp=2") };
    let losses = train_as(narrow, &config, &zero1, 2, first.path(), first.path());
    // As masters of 16-bit weights and as weights of 32 bits they are the same numbers.
    train_as(narrow, &config, &fsdp, 0, first.path(), last.path());
    assert!(state(&config, &zero1, first.path()) == state(&config, &fsdp, last.path()));
    let on = train_as(narrow, &config, &fsdp, 4, last.path(), last.path());
    let through = train_as(narrow, &config, &zero1, 4, whole.path(), whole.path());
    assert_eq!(losses, through[..2]);
    for (here, there) in on.iter().zip(&through[2..]) {
        assert!(
            (here - there).abs() < 1e-3 * there,
            "{on:?} after {losses:?}, in one go {through:?}"
        );
    }
}

/// A rank that reads holds its own numbers and a flag for each, and not the parts of other ranks.
#[test]
fn a_rank_holds_what_it_updates_and_little_more_while_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { width: 128, ..Config::default() };
    train(&config, &Parallelism::default(), 1, folder.path(), folder.path());
    let place = latest(folder.path()).unwrap().unwrap();
    let setup = Parallelism { sharding: FSDP, ..mesh("dp=4") };
    let optimizer = (Rule::ADAMW, RateSchedule::constant(1e-3));
    let held = Communicator::run_local(4, |comm| {
        let mut trainer = Trainer::<f32>::new(comm, &config, setup.clone(), 7, optimizer).unwrap();
        let own: usize =
            trainer.parts.store.local_shards().iter().map(|run| run.weights.len()).sum();
        // Owners that no other test counts for.
        let owner = 40 + trainer.groups.world.rank();
        counting::count_for(owner);
        load(&mut trainer, &place).unwrap();
        let peak = counting::of_owner(owner).peak as f64;
        counting::count_for(0);
        peak / (12 * own) as f64
    });
    assert!(held.iter().all(|share| (0.9..1.5).contains(share)), "{held:?} of its own numbers");
}
