//! Experts on the move against experts that stay.

mod support;

use half::bf16;
use maypole::Communicator;
use maypole_trainer::checkpoint::{latest, load, save};
use maypole_trainer::config::Config;
use maypole_trainer::hybrid::Worker;
use maypole_trainer::layout::Layout;
use maypole_trainer::moe::Router;
use maypole_trainer::moving::Move;
use maypole_trainer::optim::Rule;
use maypole_trainer::random::random;
use maypole_trainer::reshard::{Pool, Run as Piece, runs};
use maypole_trainer::schedule::Schedule;
use maypole_trainer::setup::Setup;
use maypole_trainer::sharding::Sharding;
use std::path::Path;
use support::{Task, alone, mesh, renumbered, router, text, train};

const EXPERTS: usize = 8;
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };
/// With a root that is kept away from zero, so that rounding in a gradient of nearly zero is not a whole step.
const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

fn task(rule: Rule) -> Task {
    let mut task = Task::small().with_experts(EXPERTS);
    task.config.layers = 2;
    let rate = if rule == Rule::Sgd { 0.5 } else { 0.01 };
    Task { steps: 9, rule, rate, rebalance: Some(3), ..task }
}

fn with(text: &str, sharding: Sharding) -> Setup {
    Setup { router: Some(router(EXPERTS)), sharding, ..mesh(text) }
}

/// Meshes and shardings in which experts are divided.
fn setups() -> Vec<Setup> {
    let plain = ["ep=2", "ep=4", "dp=2,ep=2", "ep=2,tp=2", "ep=2,cp=2", "pp=2,ep=2"]
        .map(|text| with(text, Sharding::default()));
    let shardings = [Sharding::Zero1, Sharding::Zero2, FSDP].map(|sharding| with("dp=2,ep=2", sharding));
    let sequence = Setup { sequence: true, ..with("ep=2,tp=2", Sharding::default()) };
    plain.into_iter().chain(shardings).chain([sequence, with("dp=3,ep=2", FSDP)]).collect()
}

#[test]
fn training_with_experts_on_the_move_is_training_with_experts_that_stay() {
    for rule in [Rule::Sgd, ADAMW] {
        let task = Task { rows: 12, ..task(rule) };
        let stay = Task { rebalance: None, ..task.clone() };
        let reference = train::<f64>(&stay, &alone(&with("", Sharding::default())));
        for setup in setups() {
            let run = train::<f64>(&task, &setup);
            let (loss, weights) = run.far(&reference);
            let what = format!("{} {:?} {rule:?}", setup.mesh, setup.sharding);
            assert!(loss < 1e-9 && weights < 1e-9 && run.agreed, "{what}: loss {loss:e}, weights {weights:e}");
            let moved = run.seen[0].moves.iter().filter(|it| it.any()).count();
            assert!(moved >= 3, "{what}: experts moved {moved} times");
            assert!(run.seen.iter().all(|seen| seen.moves == run.seen[0].moves), "{what}: all know of the same moves");
        }
    }
}

/// The criterion of the experts themselves.
#[test]
fn twenty_steps_end_where_one_process_ends() {
    let mut task = Task { rebalance: Some(3), ..Task::full().with_experts(EXPERTS) };
    (task.config.layers, task.config.width, task.config.context) = (2, 32, 32);
    let setup = with("ep=2", Sharding::default());
    let run = train::<f32>(&task, &setup);
    let (loss, weights) = run.far(&train::<f32>(&Task { rebalance: None, ..task }, &alone(&setup)));
    assert!(loss < 1e-6 && weights < 1e-5, "loss {loss:e}, weights {weights:e}");
    assert!(run.seen[0].moves.iter().any(Move::any));
}

/// Ranks of dp that train alone have moments of their own, which move too.
#[test]
fn experts_move_under_local_sgd_too() {
    for (rule, every) in [(Rule::Sgd, 2), (ADAMW, 4)] {
        let (task, setup) = (task(rule), with("dp=2,ep=2", Sharding::Local { every }));
        let run = train::<f64>(&task, &setup);
        let (loss, weights) = run.far(&train::<f64>(&Task { rebalance: None, ..task }, &setup));
        assert!(loss < 1e-9 && weights < 1e-9, "{rule:?}: loss {loss:e}, weights {weights:e}");
        assert!(run.seen[0].moves.iter().any(Move::any));
    }
}

/// The whole model's weights and both averages, from every rank's part.
type State = [Vec<f32>; 3];

fn whole(config: &Config, parts: impl Iterator<Item = (Vec<Piece>, State)>) -> State {
    let (mut pool, mut state) = (Pool::default(), State::default());
    for (runs, [weights, first, second]) in parts {
        pool.add(&runs, [&weights, &first, &second]);
    }
    pool.read(Piece { start: 0, len: Layout::whole(config).len() }, &mut state).unwrap();
    state
}

fn part(worker: &mut Worker<f32>) -> (Vec<Piece>, State) {
    let layout = worker.session.store.layout().clone();
    let owned = worker.session.store.owned();
    let pieces = owned.iter().flat_map(|run| runs(&layout, run.offset..run.offset + run.weights.len())).collect();
    let weights = owned.iter().flat_map(|run| run.weights.to_vec()).collect();
    (pieces, [weights, worker.session.optimizer.first.clone(), worker.session.optimizer.second.clone()])
}

/// Any order of the experts of each layer.
fn shuffled(config: &Config, seed: u64) -> Vec<Move> {
    let order = |layer: usize| {
        let mut from: Vec<usize> = (0..config.experts).collect();
        from.sort_by_key(|place| random(seed, (layer * config.experts + place) as u64));
        Move { layer, from, uneven: [1.0; 2] }
    };
    (0..config.layers).map(order).collect()
}

fn a_move_changes_places(prepare: fn(&mut Worker<f32>), setup: &Setup) {
    let task = task(Rule::ADAMW);
    let moves = shuffled(&task.config, 5);
    let ranks = Communicator::run_local(setup.mesh.world(), |comm| {
        let optimizer = (task.rule, Schedule::constant(1e-3));
        let mut worker = Worker::<f32>::new(comm, &task.config, setup.clone(), 7, optimizer).unwrap();
        prepare(&mut worker);
        let text = text(&task.config);
        worker.step(&text, 12).unwrap();
        worker.step(&text, 12).unwrap();
        let before = part(&mut worker);
        worker.rearrange(&moves).unwrap();
        let (after, here) = (part(&mut worker), worker.session.store.all_weights().unwrap());
        (before, after, here, worker.session.store.layout().clone())
    });
    let what = format!("{} {:?}", setup.mesh, setup.sharding);
    let before = whole(&task.config, ranks.iter().map(|rank| rank.0.clone()));
    let after = whole(&task.config, ranks.iter().map(|rank| rank.1.clone()));
    let from: Vec<Vec<usize>> = moves.into_iter().map(|it| it.from).collect();
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (before, after) in before.iter().zip(&after) {
        assert!(before.iter().any(|x| *x != 0.0), "{what}: there is something to move");
        assert!(bits(&renumbered(&task.config, before, &from)) == bits(after), "{what}: other numbers");
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
        a_move_changes_places(|worker| worker.narrow::<bf16>(7), &with("dp=2,ep=2", sharding));
    }
}

/// Steps of a model in which the first `hot` experts of each layer are more wanted than the rest, and experts move after
/// `step`: the rows that the busiest rank gets over the mean, by step.
fn busiest(ranks: usize, hot: usize, step: u64, prepare: fn(&mut Worker<f32>)) -> (Vec<f64>, Vec<f64>, Vec<Move>) {
    let (mut task, setup) = (task(Rule::ADAMW), with(&format!("ep={ranks}"), Sharding::default()));
    task.config.width = 32;
    let setup = Setup { router: Some(Router { balance: 0.0, ..setup.router.unwrap() }), ..setup };
    let seen = Communicator::run_local(ranks, |comm| {
        let optimizer = (task.rule, Schedule::constant(1e-4));
        let mut worker = Worker::<f32>::new(comm, &task.config, setup.clone(), 7, optimizer).unwrap();
        heat(&mut worker, hot);
        prepare(&mut worker);
        let (mut losses, mut here, mut moves, text) = (Vec::new(), Vec::new(), Vec::new(), text(&task.config));
        for _ in 0..2 * step {
            losses.push(worker.step(&text, 8).unwrap().report.loss);
            here.push(worker.ledger.borrow().here);
            if worker.session.step == step {
                moves = worker.rebalance().unwrap();
            }
        }
        (losses, here, moves)
    });
    let uneven = |nth: usize| {
        let rows = seen.iter().map(|(_, here, _)| here[nth]);
        rows.clone().max().unwrap() as f64 * ranks as f64 / rows.sum::<usize>() as f64
    };
    ((0..2 * step as usize).map(uneven).collect(), seen[0].0.clone(), seen[0].2.clone())
}

/// Norms before routers give each token the same share of what the rows of the first `hot` experts look for.
fn heat(worker: &mut Worker<f32>, hot: usize) {
    let layout = worker.session.store.layout().clone();
    let width = layout.config.width;
    let mut owned = worker.session.store.owned();
    for layer in 0..layout.config.layers {
        let at = |name: &str| layout.entry(&format!("block.{layer}.{name}")).unwrap().range();
        owned[0].weights[at("norm2.bias")].fill(0.5);
        let rows = at("router.weight").start..at("router.weight").start + hot * width;
        owned[0].weights[rows].iter_mut().for_each(|weight| *weight += 0.03);
    }
}

#[test]
fn the_busiest_rank_gets_fewer_rows_after_a_move() {
    for (ranks, hot) in [(2, 2), (4, 4)] {
        let (uneven, _, moves) = busiest(ranks, hot, 3, |_| ());
        let (before, after) = uneven.split_at(3);
        assert!(before.iter().all(|it| *it > 1.4), "ep={ranks}: {uneven:?}");
        assert!(after.iter().all(|it| *it < 1.15), "ep={ranks}: {uneven:?}");
        for it in moves {
            assert!(it.any() && it.uneven[0] > 1.4 && it.uneven[1] < 1.15, "ep={ranks}: {it:?}");
        }
    }
}

#[test]
fn sixteen_bits_move_as_thirty_two_do() {
    let narrow: fn(&mut Worker<f32>) = |worker| worker.narrow::<bf16>(7);
    let _ = (narrow, busiest(2, 2, 3, narrow));
}
