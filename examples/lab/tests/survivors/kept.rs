//! A kept copy equals its original to the bit, and a restored state equals the earlier one.

use crate::mortal::{Mortals, task};
use crate::support::SEED;
use maypole::Communicator;
use maypole_lab::averaging::DataForm;
use maypole_lab::survivors::can_lose_ranks;
use maypole_lab::survivors::keeper::{StateKeeper, keep_states};
use maypole_lab::survivors::kept::RecoveryError;
use maypole_lab::survivors::recovery::Survivors;
use maypole_lab::unequal::rows::RowDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;

fn case(sharding: Sharding) -> Mortals {
    Mortals { ranks: 3, sharding, rows: 6, deaths: Vec::new() }
}

#[test]
fn each_rank_has_its_neighbours_optimizer_of_the_same_step() {
    for sharding in [Sharding::Zero1, Sharding::Zero2] {
        let case = case(sharding);
        let text = task().text();
        let ranks = Communicator::run_local(3, |comm| {
            let mut trainer = case.trainer(comm).unwrap();
            // Not from the beginning: earlier state is copied, too.
            trainer.step(&text, 6).unwrap();
            keep_states(&mut trainer, None).unwrap();
            let mut seen = Vec::new();
            for _ in 0..4 {
                let keeper = StateKeeper::of(&trainer).unwrap();
                seen.push((trainer.optimizer().clone(), keeper.copy().clone()));
                trainer.step(&text, 6).unwrap();
            }
            seen
        });
        for (rank, seen) in ranks.iter().enumerate() {
            for (step, (_, copy)) in seen.iter().enumerate() {
                let (own, _) = &ranks[(rank + 2) % 3][step];
                assert!(!own.first.is_empty() && own == copy, "rank {rank}, step {step}");
            }
        }
    }
}

#[test]
fn keeping_changes_no_loss() {
    let case = case(Sharding::Zero2);
    let seen = case.run().remove(0).unwrap().unwrap();
    assert_eq!(seen.losses, case.expected(&[(3, 0)]));
}

/// Rank 1 leaves after three steps. Two ranks have its state after that: the weights and averages of
/// each parameter, to the bit.
#[test]
fn the_restored_state_is_bitwise_what_it_was() {
    for sharding in [Sharding::default(), Sharding::Zero1, Sharding::Zero2] {
        let case = case(sharding);
        let text = task().text();
        let state = |trainer: &mut Trainer<f32>| {
            let weights = trainer.parts.store.all_weights().unwrap();
            let places = trainer.parts.store.local_shards();
            let places = places.iter().flat_map(|run| run.offset..run.offset + run.weights.len());
            let optimizer = trainer.parts.update.optimizer();
            let averages = optimizer.first.iter().zip(&optimizer.second);
            let owned: Vec<(usize, f32, f32)> =
                places.zip(averages).map(|(at, (first, second))| (at, *first, *second)).collect();
            (weights, owned, trainer.optimizer().steps, trainer.step)
        };
        let ranks = Communicator::run_local(3, |mut comm| {
            let name = comm.rank();
            let mut survivors = Survivors::new(&mut comm).unwrap();
            let mut trainer = case.trainer(comm).unwrap();
            keep_states(&mut trainer, None).unwrap();
            (0..3).for_each(|_| drop(trainer.step(&text, 6).unwrap()));
            let before = state(&mut trainer);
            if name == 1 {
                return (before, None);
            }
            trainer.step(&text, 6).unwrap_err();
            let mut recovered = survivors.go_on(trainer, |comm| case.trainer(comm)).unwrap();
            assert_eq!((survivors.names(), &recovered.gone[..]), (&[0, 2][..], &[1][..]));
            (before, Some(state(&mut recovered.trainer)))
        });
        let mut all = vec![None; ranks[0].0.0.len()];
        for ((weights, owned, ..), _) in &ranks {
            assert_eq!(weights, &ranks[0].0.0);
            owned.iter().for_each(|(at, first, second)| all[*at] = Some((*first, *second)));
        }
        let mut restored = 0;
        for (_, after) in &ranks {
            let Some((weights, owned, updates, step)) = after else { continue };
            assert!((*updates, *step) == (3, 3) && *weights == ranks[0].0.0, "{sharding:?}");
            restored += owned.len();
            for (at, first, second) in owned {
                assert_eq!(all[*at], Some((*first, *second)), "{sharding:?}: parameter {at}");
            }
        }
        let whole = if sharding == Sharding::default() { 2 * all.len() } else { all.len() };
        assert_eq!(restored, whole, "{sharding:?}");
    }
}

#[test]
fn nobody_goes_on_if_nobody_has_gone() {
    let case = case(Sharding::Zero1);
    Communicator::run_local(3, |mut comm| {
        let mut survivors = Survivors::new(&mut comm).unwrap();
        let mut trainer = case.trainer(comm).unwrap();
        keep_states(&mut trainer, None).unwrap();
        let refused = survivors.go_on(trainer, |comm| case.trainer(comm)).err().unwrap();
        assert!(matches!(refused, RecoveryError::NoneGone(3)), "{refused}");
    });
}

#[test]
fn what_has_no_second_copy_is_refused() {
    for (mesh, sharding, part) in [
        ("dp=2,tp=2", Sharding::default().into(), "tp divides it"),
        ("pp=2", Sharding::default().into(), "pp divides it"),
        ("dp=2", Sharding::Fsdp { prefetch: true }.into(), "give --sharding replicated"),
        ("dp=2", DataForm::Local { every: 2 }, "give --sharding replicated"),
    ] {
        let mesh = Mesh::parse(mesh).unwrap();
        let why = can_lose_ranks(mesh, sharding, &RowDivision::Equal).unwrap_err();
        assert!(why.contains(part), "{mesh}: {why}");
    }
    // One rank has no other rank to lose.
    let optimizer = (task().rule, RateSchedule::constant(0.1));
    let comm = Communicator::local(1).remove(0);
    let mut one =
        Trainer::<f32>::new(comm, &task().config, Parallelism::default(), SEED, optimizer).unwrap();
    keep_states(&mut one, None).unwrap();
    assert!(one.step(&task().text(), 4).unwrap().report.loss.is_finite());
}
