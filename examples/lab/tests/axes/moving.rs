//! Experts that move compared with experts that stay.

use crate::skip;
use crate::support::{Recipe, alone, full, mesh, renumbered, router, small, train, with_experts};
use half::bf16;
use maypole::Communicator;
use maypole_lab::averaging::DataForm;
use maypole_lab::rebalance::{ExpertMove, move_experts, rearrange, rebalance};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::{LayoutEntry, ModelPart, ParameterLayout};
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::random::random;
use maypole_trainer::train::checkpoint::history::latest;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::reshard::{ParameterRun as Piece, runs};
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use std::path::Path;

const EXPERTS: usize = 8;
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };
/// With a large epsilon: with a small one, rounding in a gradient near zero would change a weight
/// by a whole step.
const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

fn task(rule: Rule) -> Recipe {
    let mut task = with_experts(small(), EXPERTS);
    task.config.layers = 2;
    let rate = if rule == Rule::Sgd { 0.5 } else { 0.01 };
    let schedule = RateSchedule::constant(rate);
    Recipe { steps: 9, rule, schedule, rebalance: Some(3), ..task }
}

fn with(text: &str, sharding: Sharding) -> Parallelism {
    Parallelism { router: Some(router(EXPERTS)), sharding, ..mesh(text) }
}

/// Meshes and shardings in which experts are divided.
fn setups() -> Vec<Parallelism> {
    let plain = ["ep=2", "ep=4", "dp=2,ep=2", "ep=2,tp=2", "ep=2,cp=2", "pp=2,ep=2"]
        .map(|text| with(text, Sharding::default()));
    let shardings =
        [Sharding::Zero1, Sharding::Zero2, FSDP].map(|sharding| with("dp=2,ep=2", sharding));
    let sequence = Parallelism { sequence: true, ..with("ep=2,tp=2", Sharding::default()) };
    plain.into_iter().chain(shardings).chain([sequence, with("dp=3,ep=2", FSDP)]).collect()
}

#[test]
fn training_with_experts_on_the_move_is_training_with_experts_that_stay() {
    crate::skip::takes_turns!(4);
    for rule in skip::every_nth(2, [Rule::Sgd, ADAMW]) {
        let task = Recipe { rows: 12, ..task(rule) };
        let stay = Recipe { rebalance: None, ..task.clone() };
        let reference = train::<f64>(&stay, &alone(&with("", Sharding::default())));
        for setup in setups() {
            let run = train::<f64>(&task, &setup);
            let (loss, weights) = run.difference(&reference);
            let what = format!("{} {:?} {rule:?}", setup.mesh, setup.sharding);
            assert!(
                loss < 1e-9 && weights < 1e-9 && run.agreed,
                "{what}: loss {loss:e}, weights {weights:e}"
            );
            let moved = run.outcome.moves.iter().filter(|it| it.any()).count();
            assert!(moved >= 3, "{what}: experts moved {moved} times");
        }
    }
}

/// The criterion of `experts.rs`, with experts that move.
#[test]
fn twenty_steps_end_where_one_process_ends() {
    let mut task = Recipe { rebalance: Some(3), ..with_experts(full(), EXPERTS) };
    (task.config.layers, task.config.width, task.config.context) = (2, 32, 32);
    let setup = with("ep=2", Sharding::default());
    let run = train::<f32>(&task, &setup);
    let (loss, weights) =
        run.difference(&train::<f32>(&Recipe { rebalance: None, ..task }, &alone(&setup)));
    assert!(loss < 1e-6 && weights < 1e-5, "loss {loss:e}, weights {weights:e}");
    assert!(run.outcome.moves.iter().any(ExpertMove::any));
}

/// Ranks of dp that train alone have moments of their own, which move too.
#[test]
fn experts_move_under_local_sgd_too() {
    for (rule, every) in [(Rule::Sgd, 2), (ADAMW, 4)] {
        let task = task(rule);
        let setup = with("dp=2,ep=2", Sharding::default());
        let task = Recipe { averaging: Some(DataForm::Local { every }), ..task };
        let run = train::<f64>(&task, &setup);
        let (loss, weights) =
            run.difference(&train::<f64>(&Recipe { rebalance: None, ..task }, &setup));
        assert!(loss < 1e-9 && weights < 1e-9, "{rule:?}: loss {loss:e}, weights {weights:e}");
        assert!(run.outcome.moves.iter().any(ExpertMove::any));
    }
}

/// The whole model's weights and both averages, from every rank's part.
type State = [Vec<f32>; 3];

fn whole(config: &Config, parts: impl Iterator<Item = (Vec<Piece>, State)>) -> State {
    let len = ParameterLayout::whole(config).len();
    let mut state = [(); 3].map(|()| vec![f32::NAN; len]);
    for (runs, numbers) in parts {
        for (all, own) in state.iter_mut().zip(&numbers) {
            let mut rest = &own[..];
            for Piece { start, len } in &runs {
                let (here, after) = rest.split_at(*len);
                all[*start..start + len].copy_from_slice(here);
                rest = after;
            }
        }
    }
    assert!(state.iter().flatten().all(|number| !number.is_nan()), "every number is somewhere");
    state
}

fn part(trainer: &mut Trainer<f32>) -> (Vec<Piece>, State) {
    let layout = trainer.parts.store.layout().clone();
    let owned = trainer.parts.store.local_shards();
    let pieces = owned
        .iter()
        .flat_map(|run| runs(&layout, run.offset..run.offset + run.weights.len()))
        .collect();
    let weights = owned.iter().flat_map(|run| run.weights.to_vec()).collect();
    (pieces, [weights, trainer.optimizer().first.clone(), trainer.optimizer().second.clone()])
}

/// Any order of the experts of each layer.
fn shuffled(config: &Config, seed: u64) -> Vec<ExpertMove> {
    let order = |layer: usize| {
        let mut from: Vec<usize> = (0..config.experts).collect();
        from.sort_by_key(|place| random(seed, (layer * config.experts + place) as u64));
        ExpertMove { layer, from, uneven: [1.0; 2] }
    };
    (0..config.layers).map(order).collect()
}

/// Bytes that a rank should send to the others of `ep`: weights and both averages of the experts
/// that leave, and the lengths of all messages, which the library sends to all ranks.
fn theory(trainer: &Trainer<f32>, moves: &[ExpertMove]) -> u64 {
    let ep = &trainer.groups.ep;
    let layout = trainer.parts.store.layout();
    let each = layout.config.experts / ep.world();
    let sent = |it: &ExpertMove| {
        let entries =
            || layout.entries.iter().filter(|entry| entry.part == ModelPart::Block(it.layer));
        let expert = entries()
            .filter(|entry| entry.expert == Some(ep.rank() * each))
            .map(LayoutEntry::len)
            .sum::<usize>();
        let leaves =
            |(place, from): (usize, &usize)| place / each != ep.rank() && from / each == ep.rank();
        let counts = if entries().next().is_some() { 2 * ep.world() * (ep.world() - 1) } else { 0 };
        let leaving = it.from.iter().enumerate().filter(|it| leaves(*it)).count();
        3 * (leaving * expert * size_of::<f32>() + counts * size_of::<u64>()) as u64
    };
    moves.iter().map(sent).sum()
}

fn a_move_changes_places(prepare: fn(&mut Trainer<f32>), setup: &Parallelism) {
    let task = task(Rule::ADAMW);
    let moves = shuffled(&task.config, 5);
    let ranks = Communicator::run_local(setup.mesh.world(), |comm| {
        let optimizer = (task.rule, RateSchedule::constant(1e-3));
        let mut trainer =
            Trainer::<f32>::new(comm, &task.config, setup.clone(), 7, optimizer).unwrap();
        prepare(&mut trainer);
        let text = task.text();
        trainer.step(&text, 12).unwrap();
        trainer.step(&text, 12).unwrap();
        let before = part(&mut trainer);
        let sent = trainer.sent();
        rearrange(&mut trainer, move_experts, &moves).unwrap();
        let sent = trainer.sent().since(sent).ep;
        assert_eq!(
            sent,
            theory(&trainer, &moves),
            "{} {:?}: bytes that leave",
            setup.mesh,
            setup.sharding
        );
        let after = part(&mut trainer);
        let here = trainer.parts.store.all_weights().unwrap();
        (before, after, here, trainer.parts.store.layout().clone())
    });
    let what = format!("{} {:?}", setup.mesh, setup.sharding);
    let before = whole(&task.config, ranks.iter().map(|rank| rank.0.clone()));
    let after = whole(&task.config, ranks.iter().map(|rank| rank.1.clone()));
    let from: Vec<Vec<usize>> = moves.into_iter().map(|it| it.from).collect();
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (before, after) in before.iter().zip(&after) {
        assert!(before.iter().any(|x| *x != 0.0), "{what}: there is something to move");
        assert!(
            bits(&renumbered(&task.config, before, &from)) == bits(after),
            "{what}: other numbers"
        );
    }
    for (_, _, here, layout) in ranks {
        let narrow = here.iter().all(|x| bf16::from_f32(*x).to_f32() == *x);
        let seen = |x: f32| if narrow { bf16::from_f32(x).to_f32() } else { x };
        let expected: Vec<f32> = layout.gather_from(&after[0]).into_iter().map(seen).collect();
        assert!(bits(&expected) == bits(&here), "{what}: layers see something else");
    }
}

#[test]
fn a_move_is_a_change_of_places_to_the_last_bit() {
    for setup in setups() {
        a_move_changes_places(|_| (), &setup);
    }
    for sharding in [Sharding::default(), Sharding::Zero1, FSDP] {
        a_move_changes_places(
            |trainer| trainer.narrow::<bf16>(7).unwrap(),
            &with("dp=2,ep=2", sharding),
        );
    }
}

/// A run with experts that may move, the change before its first step, and its checkpoints.
struct Watched<'a> {
    task: Recipe,
    setup: Parallelism,
    prepare: fn(&mut Trainer<f32>),
    /// The folder of checkpoints: the run resumes from the last one, if there is one, and saves
    /// one.
    folder: &'a Path,
}

/// The losses of a rank and the rows that went through its experts, by step; and all moves.
type Steps = (Vec<f64>, Vec<usize>, Vec<ExpertMove>);

impl Watched<'_> {
    fn run(&self) -> Vec<Steps> {
        let Self { task, setup, .. } = self;
        setup.check(&task.config, task.rows).unwrap();
        Communicator::run_local(setup.mesh.world(), |comm| {
            let mut trainer = task.rank(comm, setup).unwrap();
            (self.prepare)(&mut trainer);
            if let Some(place) = latest(self.folder).unwrap() {
                load(&mut trainer, &place).unwrap();
            }
            let mut losses = Vec::new();
            let mut here = Vec::new();
            let mut moves = Vec::new();
            let text = task.text();
            while trainer.step < task.steps {
                losses.push(trainer.step(&text, task.rows).unwrap().report.loss);
                here.push(trainer.parts.pipeline.routing.borrow().each.iter().sum::<usize>());
                if task.rebalance.is_some_and(|every| trainer.step.is_multiple_of(every)) {
                    moves.extend(rebalance(&mut trainer, move_experts).unwrap());
                }
            }
            save(&mut trainer, self.folder).unwrap();
            (losses, here, moves)
        })
    }
}

/// Makes some experts of each layer busier than the rest: as many as there are ranks, all on the
/// first ranks.
fn make_experts_busy(trainer: &mut Trainer<f32>) {
    let layout = trainer.parts.store.layout().clone();
    let hot = trainer.groups.ep.world();
    let width = layout.config.width;
    let mut owned = trainer.parts.store.local_shards();
    for layer in 0..layout.config.layers {
        let at = |name: &str| layout.entry(&format!("block.{layer}.{name}")).unwrap().range();
        // Every token has this component, and these rows of the router give it a high score.
        owned[0].weights[at("norm2.bias")].fill(0.1);
        let rows = at("router.weight").start..at("router.weight").start + hot * width;
        owned[0].weights[rows].iter_mut().for_each(|weight| *weight += 0.6);
    }
}

#[test]
fn the_busiest_rank_gets_fewer_rows_after_a_move() {
    // With four ranks the busiest expert alone has more than its rank's share, and that stays.
    for (ranks, was, is) in [(2, 1.4, 1.15), (4, 2.0, 1.8)] {
        let mut setup = with(&format!("ep={ranks}"), Sharding::default());
        setup.router.as_mut().unwrap().balance = 0.0;
        let task = Recipe {
            steps: 6,
            rebalance: Some(3),
            schedule: RateSchedule::constant(1e-4),
            ..task(ADAMW)
        };
        let folder = tempfile::tempdir().unwrap();
        let seen = Watched { task, setup, prepare: make_experts_busy, folder: folder.path() }.run();
        let uneven = |nth: usize| {
            let rows = || seen.iter().map(|(_, here, _)| here[nth]);
            rows().max().unwrap() as f64 * ranks as f64 / rows().sum::<usize>() as f64
        };
        let uneven: Vec<f64> = (0..6).map(uneven).collect();
        println!("rows of the busiest of {ranks} ranks over the mean, by step: {uneven:.2?}");
        assert!(
            uneven[..3].iter().all(|it| *it > was) && uneven[3..].iter().all(|it| *it < is),
            "{uneven:?}"
        );
        let (first, second) = seen[0].2.split_at(2);
        assert!(first.iter().all(|it| it.any() && it.uneven[0] > it.uneven[1]), "{first:?}");
        assert!(
            !second.iter().any(ExpertMove::any),
            "no expert moves for less than the move costs: {second:?}"
        );
    }
}

#[test]
fn sixteen_bits_move_as_thirty_two_do() {
    let narrow: fn(&mut Trainer<f32>) = |trainer| trainer.narrow::<bf16>(7).unwrap();
    for sharding in [Sharding::default(), Sharding::Zero1, FSDP] {
        let losses = |rebalance| {
            let task = Recipe { rebalance, ..task(ADAMW) };
            let folder = tempfile::tempdir().unwrap();
            let setup = with("dp=2,ep=2", sharding);
            let (losses, _, moves) =
                Watched { task, setup, prepare: narrow, folder: folder.path() }
                    .run()
                    .swap_remove(0);
            assert_eq!(moves.iter().any(ExpertMove::any), rebalance.is_some());
            losses
        };
        let moved = losses(Some(3));
        let stayed = losses(None);
        assert_eq!(moved[..3], stayed[..3], "no expert has moved yet");
        let far: Vec<f64> = moved
            .iter()
            .zip(&stayed)
            .map(|(moved, stayed)| (moved - stayed).abs() / stayed)
            .collect();
        // Sums over experts in another order may be rounded to another 16-bit number: later
        // losses show this.
        assert!(far[3] < 1e-6 && far.iter().all(|far| *far < 1e-2), "{sharding:?}: {far:?}");
    }
}

/// Two steps on each mesh, from the checkpoint of the mesh before. Experts move on all meshes that
/// divide them.
#[test]
fn a_checkpoint_after_a_move_resumes_in_one_process_and_on_any_mesh() {
    let [folder, nowhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let one = with("", Sharding::default());
    let journey = [
        with("dp=2,ep=2", FSDP),
        one.clone(),
        with("ep=4", Sharding::default()),
        with("ep=2,tp=2", Sharding::default()),
        one.clone(),
    ];
    let task = Recipe { steps: 2 * journey.len() as u64, rebalance: None, ..task(ADAMW) };
    let watched =
        |task, setup, folder| Watched { task, setup, prepare: |_| (), folder }.run().swap_remove(0);
    let (reference, ..) = watched(task.clone(), one, nowhere.path());
    for (nth, (setup, expected)) in journey.into_iter().zip(reference.chunks(2)).enumerate() {
        let mesh = setup.mesh;
        let divided = setup.mesh.size(MeshAxis::Ep) > 1;
        let task = Recipe { steps: 2 * nth as u64 + 2, rebalance: Some(2), ..task.clone() };
        let (losses, _, moves) = watched(task, setup, folder.path());
        assert_eq!(moves.iter().any(ExpertMove::any), divided, "on {mesh}");
        for (loss, expected) in losses.iter().zip(expected) {
            assert!((loss - expected).abs() < 1e-5 * expected, "on {mesh}: {loss}, not {expected}");
        }
    }
}
