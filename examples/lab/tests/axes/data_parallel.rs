//! Data parallelism in all its forms against one process, bit for bit where that is promised.

use crate::skip;
use maypole_lab::compare::Recipe;
use maypole_lab::replicas::SumFirst;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;

const WHOLE: Sharding = Sharding::Replicated { bucket: Some(25 << 20), overlap: true };

/// The recipe of the criteria, 20 steps, with AdamW.
fn adam() -> Recipe {
    Recipe { rule: Rule::ADAMW, schedule: RateSchedule::constant(1e-3), ..Recipe::default() }
}

#[test]
fn buckets_of_any_size_with_and_without_overlap_are_bitwise_the_rank_ordered_sum() {
    crate::skip::takes_turns!(4);
    let recipe = adam();
    for ranks in skip::every_nth(2, [2, 4]) {
        let alone = recipe.alone(ranks, 1, SumFirst::MicroBatches);
        for (bucket, overlap) in
            [(25 << 20, true), (100_000, true), (4_000, true), (100_000, false)]
        {
            let outcome =
                recipe.ranks(ranks, 1, Sharding::Replicated { bucket: Some(bucket), overlap });
            assert!(
                outcome.difference(&alone).bitwise,
                "{ranks} ranks, buckets of {bucket}, overlap {overlap}"
            );
        }
    }
}

#[test]
fn two_ranks_train_as_one_process_with_the_whole_batch_does() {
    crate::skip::takes_turns!(4);
    let recipe = Recipe::default();
    let difference =
        recipe.ranks(2, 1, WHOLE).difference(&recipe.alone(1, 1, SumFirst::MicroBatches));
    assert!(difference.loss < 1e-6 && difference.weights < 1e-6, "{difference:?}");
}

#[test]
fn micro_batches_are_bitwise_added_in_place_and_close_to_the_whole_batch() {
    crate::skip::takes_turns!(4);
    let recipe = Recipe::default();
    let outcome = recipe.ranks(2, 2, WHOLE);
    assert!(outcome.difference(&recipe.alone(2, 2, SumFirst::MicroBatches)).bitwise);
    let difference = outcome.difference(&recipe.alone(1, 1, SumFirst::MicroBatches));
    assert!(difference.loss < 1e-6 && difference.weights < 1e-6, "{difference:?}");
}

#[test]
fn every_form_of_zero_is_bitwise_data_parallelism() {
    crate::skip::takes_turns!(4);
    let recipe = adam();
    for ranks in skip::every_nth(2, [2, 3]) {
        let recipe = Recipe { rows: 6, ..recipe.clone() };
        let alone = recipe.alone(ranks, 1, SumFirst::MicroBatches);
        for sharding in [
            WHOLE,
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Fsdp { prefetch: true },
            Sharding::Fsdp { prefetch: false },
        ] {
            assert!(
                recipe.ranks(ranks, 1, sharding).difference(&alone).bitwise,
                "{ranks} ranks, {sharding:?}"
            );
        }
    }
}

/// Ranks of one host read one another's gradients, and the weights of ZeRO-1 and ZeRO-2, where they
/// lie.
#[test]
fn flat_buffers_are_in_registered_memory() {
    let recipe = Recipe { steps: 2, ..adam() };
    for sharding in [WHOLE, Sharding::Zero1, Sharding::Zero2] {
        let registered = |group: &RankGroup| group.call(|comm| Ok(comm.counters().registered));
        let (_, calls) =
            recipe.each_rank((2, 1), sharding, |_| (), |it| registered(&it.groups.copies).unwrap());
        assert!(calls.iter().all(|calls| *calls >= recipe.steps), "{sharding:?}: {calls:?}");
    }
}

#[test]
fn shards_accumulate_over_micro_batches() {
    crate::skip::takes_turns!(4);
    let recipe = adam();
    let [ranks_first, micro_first] =
        [SumFirst::Ranks, SumFirst::MicroBatches].map(|first| recipe.alone(2, 4, first));
    assert!(recipe.ranks(2, 4, Sharding::Zero1).difference(&micro_first).bitwise);
    assert!(recipe.ranks(2, 4, Sharding::Zero2).difference(&ranks_first).bitwise);
    assert!(recipe.ranks(2, 4, Sharding::Fsdp { prefetch: true }).difference(&ranks_first).bitwise);
}

#[test]
fn gradients_travel_once_a_step_whatever_the_number_of_micro_batches() {
    let recipe = Recipe { steps: 3, ..Recipe::default() };
    let calls = |micro, bucket| {
        let sharding = Sharding::Replicated { bucket: Some(bucket), overlap: true };
        recipe.each_rank((2, micro), sharding, |_| (), |it| it.groups.copies.calls()).1[0]
    };
    assert_eq!(calls(1, 25 << 20), recipe.steps);
    assert_eq!(calls(4, 25 << 20), recipe.steps);
    // No two units of this model fit into a bucket of this size.
    let buckets = recipe.config.layers as u64 + 2;
    assert_eq!(calls(4, 100_000), buckets * recipe.steps);
}
