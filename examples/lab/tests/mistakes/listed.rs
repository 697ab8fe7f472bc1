//! Every mistake of the list is made, and the comparison with one process finds it.

use crate::support::{Recipe, caught, mesh, router, small, with_experts};
use maypole_lab::mistakes::Mistake;
use maypole_lab::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::schedule::RateSchedule;

/// AdamW with a large epsilon. With a small one, rounding of a gradient that is nearly zero changes
/// the update by a whole step.
const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

/// Returns a task and a setup in which `fault` has an effect.
pub(crate) fn setup_with_effect(fault: Mistake) -> (Recipe, Parallelism) {
    let task = small();
    let pp = Parallelism { micros: 4, ..mesh("pp=2") };
    let even = || {
        let mut task = small();
        task.config.vocab = 124;
        task
    };
    let experts = |text: &str| {
        (with_experts(small(), 4), Parallelism { router: Some(router(4)), ..mesh(text) })
    };
    match fault {
        Mistake::LocalMean | Mistake::GradientsAlone | Mistake::GradientsAveraged => {
            (task, mesh("dp=2"))
        }
        // If the parts of the ranks of tp differ in length, the library itself refuses the sum. So
        // the vocabulary is even.
        Mistake::GradientsOverTensor => (even(), mesh("dp=2,tp=2")),
        Mistake::NoSumAfterRow | Mistake::NoSumBeforeColumn => (task, mesh("tp=2")),
        Mistake::NormsNotSummed => (task, Parallelism { sequence: true, ..mesh("tp=2") }),
        Mistake::PositionsOfFirst => {
            (task, Parallelism { sequence: true, micros: 8, ..mesh("tp=2") })
        }
        Mistake::RouterSummed => {
            let (task, setup) = experts("tp=2");
            (task, Parallelism { sequence: true, ..setup })
        }
        Mistake::DenseCountedOften => {
            let (task, setup) = experts("ep=2");
            (Recipe { clip: Some(0.1), ..task }, setup)
        }
        Mistake::VocabularyRemainder | Mistake::VocabularyMaximum => (task, mesh("tp=2")),
        Mistake::MicrosSwapped => (task, pp),
        Mistake::ActivationsStacked => {
            (task, Parallelism { schedule: PipelineSchedule::GPipe, ..pp })
        }
        Mistake::ExpertsSummed
        | Mistake::NotCombined
        | Mistake::GatesForgotten
        | Mistake::LocalBalance => experts("ep=2"),
        Mistake::RouterLeftBehind | Mistake::MomentsLeftBehind => {
            let (task, setup) = experts("ep=2");
            (
                Recipe {
                    rebalance: Some(1),
                    rule: ADAMW,
                    schedule: RateSchedule::constant(0.01),
                    ..task
                },
                setup,
            )
        }
        Mistake::NotRescaled
        | Mistake::NotSentHome
        | Mistake::MaskOfFirst
        | Mistake::PlainPositions => (task, mesh("cp=2")),
        Mistake::HeadsSwapped => {
            (task, Parallelism { exchange: ContextExchange::Ulysses, ..mesh("cp=2") })
        }
        Mistake::OwnRowsMean | Mistake::RowsCutAlone => {
            let clock = SpeedClock::Pretended(vec![1.0, 3.0]);
            (Recipe { division: RowDivision::BySpeed { every: 1, clock }, ..task }, mesh("dp=2"))
        }
        Mistake::NormOfPart => {
            let sharded = Parallelism { sharding: Sharding::Zero1, ..mesh("dp=2") };
            (Recipe { clip: Some(0.1), ..task }, sharded)
        }
        Mistake::SkippedAlone => {
            let sharded = Parallelism { sharding: Sharding::Zero1, ..mesh("dp=2") };
            (Recipe { overflow: Some(1), ..task }, sharded)
        }
        Mistake::ClippedScaled => (Recipe { clip: Some(0.1), scale: true, ..task }, mesh("dp=2")),
        Mistake::ShardReplaced => {
            (task, Parallelism { sharding: Sharding::Zero2, micros: 2, ..mesh("dp=2") })
        }
        Mistake::SummedEachMicro => (task, Parallelism { micros: 2, ..mesh("dp=2") }),
        Mistake::UpdatesForgotten => {
            let schedule = RateSchedule::constant(0.01);
            (Recipe { resumed: Some(2), rule: ADAMW, schedule, ..task }, mesh("dp=2"))
        }
        Mistake::NoMasters => (task, mesh("dp=2")),
        Mistake::PlannedAsGpipe => (task, pp),
        Mistake::ActivationsKept => (Recipe { recompute: true, ..task }, mesh("tp=2")),
        Mistake::UnitsKept | Mistake::SumsAfterwards => {
            (task, Parallelism { sharding: Sharding::Fsdp { prefetch: true }, ..mesh("dp=2") })
        }
    }
}

/// A test for each mistake, and a test that every mistake has one.
macro_rules! noticed {
    ($($name:ident: $fault:ident,)*) => {
        $(#[test]
        fn $name() {
            let (task, setup) = setup_with_effect(Mistake::$fault);
            let found = caught(&task, &setup, Mistake::$fault);
            assert!(found, "the comparison with one process finds no difference");
        })*

        #[test]
        fn every_mistake_has_a_test() {
            let tested = [$(Mistake::$fault),*];
            let silent = |fault: &Mistake| fault.changes_no_number();
            for fault in Mistake::ALL {
                assert!(tested.contains(&fault) != silent(&fault), "{fault:?}");
            }
        }
    };
}

noticed! {
    a_mean_over_a_ranks_own_tokens: LocalMean,
    gradients_that_are_not_summed: GradientsAlone,
    gradients_summed_over_the_wrong_axis: GradientsOverTensor,
    an_average_for_a_sum: GradientsAveraged,
    no_sum_after_a_row_parallel_layer: NoSumAfterRow,
    no_sum_of_gradients_before_a_column_parallel_layer: NoSumBeforeColumn,
    norms_that_are_not_summed_under_sequence_parallelism: NormsNotSummed,
    positions_of_the_first_ranks_tokens: PositionsOfFirst,
    a_vocabulary_without_its_remainder: VocabularyRemainder,
    a_softmax_shifted_by_a_parts_maximum: VocabularyMaximum,
    targets_of_the_next_micro_batch: MicrosSwapped,
    activations_of_the_last_micro_batch: ActivationsStacked,
    experts_summed_over_other_experts: ExpertsSummed,
    outputs_of_experts_out_of_order: NotCombined,
    gates_without_a_gradient: GatesForgotten,
    an_auxiliary_loss_of_a_ranks_own_groups: LocalBalance,
    a_router_summed_over_ranks_that_route_all_tokens: RouterSummed,
    dense_parameters_counted_by_each_rank_of_ep: DenseCountedOften,
    a_router_left_behind: RouterLeftBehind,
    moments_left_behind: MomentsLeftBehind,
    a_softmax_that_is_not_rescaled: NotRescaled,
    gradients_of_keys_that_are_not_sent_back: NotSentHome,
    the_mask_of_the_first_rank: MaskOfFirst,
    positions_of_a_contiguous_division: PlainPositions,
    tokens_in_contiguous_order_after_ulysses: HeadsSwapped,
    a_mean_of_replicas_with_unequal_rows: OwnRowsMean,
    rows_divided_anew_on_one_rank_only: RowsCutAlone,
    clipping_by_the_norm_of_a_part: NormOfPart,
    an_overflow_that_one_rank_alone_skips: SkippedAlone,
    clipping_before_unscaling: ClippedScaled,
    sums_of_the_last_micro_batch_alone: ShardReplaced,
    sums_in_every_micro_batch: SummedEachMicro,
    updates_counted_from_zero_after_a_resume: UpdatesForgotten,
    weights_without_masters: NoMasters,
}

/// The tour finds these mistakes by the memory and by the order of passes.
#[test]
fn silent_mistakes_change_no_number() {
    for fault in Mistake::ALL.into_iter().filter(|fault| fault.changes_no_number()) {
        let (task, setup) = setup_with_effect(fault);
        assert!(!caught(&task, &setup, fault), "{fault:?} changes numbers");
    }
}

#[test]
fn without_a_mistake_nothing_is_noticed() {
    crate::skip::takes_turns!(4);
    for fault in Mistake::ALL {
        let (task, setup) = setup_with_effect(fault);
        assert!(!crate::support::differs(&task, &setup, None), "{} without {fault:?}", setup.mesh);
    }
}

/// So the loss alone does not show most mistakes.
#[test]
fn the_loss_falls_in_spite_of_most_mistakes() {
    crate::skip::takes_turns!(4);
    let falls = |fault: &Mistake| {
        let (task, setup) = setup_with_effect(*fault);
        let task = Recipe { steps: 12, mistake: Some(*fault), ..task };
        let run = crate::support::train::<f64>(&task, &setup);
        run.outcome.losses.last() < run.outcome.losses.first()
    };
    let silent: Vec<Mistake> = Mistake::ALL.into_iter().filter(falls).collect();
    assert!(silent.len() * 3 > Mistake::ALL.len() * 2, "only {silent:?}");
}
