//! A Llama-shaped model over every axis: it trains as one process, by the same bounds as a GPT, and its
//! memory and its bytes sent are those of the formulas.

use crate::skip;
use crate::support::{self, Run, SEED, alone, full, mesh, train, train_by};
use half::bf16;
use maypole_lab::compare::Recipe;
use maypole_lab::replicas::SumFirst;
use maypole_lab::theory::RankTheory;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::schedule::RateSchedule;

/// In `f64` nothing but a mistake is as large as this.
const NOISE: f64 = 1e-11;

/// A small model of which two heads of queries share each head of keys.
fn small() -> Recipe {
    let mut task = support::small();
    task.config.architecture = Architecture::Llama { kv_heads: 2 };
    task
}

/// The same with as many heads of keys as of queries, so that tp may be 4.
fn ungrouped() -> Recipe {
    let mut task = small();
    task.config.architecture = Architecture::Llama { kv_heads: 4 };
    task
}

fn check(task: &Recipe, setups: &[Parallelism]) {
    for setup in setups {
        let reference: Run<f64> = train(task, &alone(setup));
        let run = train(task, setup);
        let (loss, weights) = run.difference(&reference);
        assert!(
            loss < NOISE && weights < NOISE,
            "{}: loss {loss:e}, weights {weights:e}: {setup:?}",
            setup.mesh
        );
        assert!(run.agreed, "{}: ranks that have the same weights disagree about them", setup.mesh);
    }
}

#[test]
fn every_form_of_zero_has_the_bits_of_data_parallelism() {
    crate::skip::takes_turns!(4);
    let architecture = Architecture::Llama { kv_heads: 2 };
    let config = Config { architecture, ..Config::default() };
    let schedule = RateSchedule::constant(1e-3);
    let adam = Recipe { config, rule: Rule::ADAMW, schedule, steps: 10, ..Recipe::default() };
    for ranks in skip::every_nth(2, [2, 3]) {
        let recipe = Recipe { rows: 6, ..adam.clone() };
        let reference = recipe.alone(ranks, 1, SumFirst::MicroBatches);
        for sharding in [
            Sharding::Replicated { bucket: Some(100_000), overlap: true },
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Fsdp { prefetch: true },
            Sharding::Fsdp { prefetch: false },
        ] {
            let run = recipe.ranks(ranks, 1, sharding);
            assert!(run.difference(&reference).bitwise, "{ranks} ranks, {sharding:?}");
        }
    }
}

#[test]
fn divided_layers_train_as_whole_ones() {
    let setups = |text| [false, true].map(|sequence| Parallelism { sequence, ..mesh(text) });
    check(&small(), &setups("tp=2"));
    check(&ungrouped(), &setups("tp=4"));
    // Three rows over two ranks: sequence parallelism divides one row, and a rank begins amid it.
    let odd = Recipe { rows: 3, ..small() };
    check(&odd, &setups("tp=2"));
}

#[test]
fn twenty_steps_over_tensor_ranks_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    let mut task = full();
    task.config.architecture = Architecture::Llama { kv_heads: 2 };
    let reference: Run<f32> = train(&task, &Parallelism::default());
    for sequence in [false, true] {
        let run = train(&task, &Parallelism { sequence, ..mesh("tp=2") });
        let (loss, weights) = run.difference(&reference);
        assert!(loss < 1e-5 && weights < 1e-5, "loss {loss:e}, weights {weights:e}");
        assert!(run.agreed);
    }
}

#[test]
fn every_schedule_of_a_pipeline_has_the_bits_of_one_process() {
    let adam =
        Recipe { rule: Rule::ADAMW, schedule: RateSchedule::constant(1e-2), steps: 5, ..small() };
    for task in [small(), adam] {
        let reference: Run<f32> =
            train(&task, &Parallelism { micros: 4, ..Parallelism::default() });
        for ranks in [2, 4] {
            for schedule in [
                PipelineSchedule::GPipe,
                PipelineSchedule::OneForwardOneBackward,
                PipelineSchedule::Interleaved(2),
            ] {
                let setup = Parallelism { schedule, micros: 4, ..mesh(&format!("pp={ranks}")) };
                let run = train(&task, &setup);
                assert!(run.same_bits(&reference), "{} on {ranks} ranks", schedule.name());
            }
        }
    }
}

/// Stages exchange numbers without rounding.
#[test]
fn sixteen_bits_over_a_pipeline_are_those_of_one_process() {
    let narrow = |setup: &Parallelism| -> Run<f32> {
        train_by(&small(), setup, |trainer| trainer.narrow::<bf16>(SEED).unwrap())
    };
    let reference = narrow(&Parallelism { micros: 4, ..Parallelism::default() });
    let run = narrow(&Parallelism { micros: 4, ..mesh("pp=2") });
    assert_eq!(run.outcome.losses, reference.outcome.losses);
    let wide: Run<f32> = train(&small(), &Parallelism { micros: 4, ..Parallelism::default() });
    let (loss, _) = wide.difference(&reference);
    assert!(loss > 1e-6 && loss < 1e-2, "as in 32 bits, but for rounding: {loss:e}");
}

#[test]
fn divided_positions_train_as_whole_rows() {
    let mut setups = Vec::new();
    for exchange in [ContextExchange::Ring, ContextExchange::Ulysses] {
        for text in ["cp=2", "cp=4"] {
            for division in [PositionDivision::ZigZag, PositionDivision::Contiguous] {
                setups.push(Parallelism { exchange, division, ..mesh(text) });
            }
        }
    }
    check(&small(), &setups);
}

#[test]
fn meshes_of_several_axes_train_as_one_process() {
    crate::skip::takes_turns!(4);
    let mut setups = Vec::new();
    for text in ["dp=2,tp=2", "dp=2,pp=2", "pp=2,tp=2", "cp=2,tp=2", "dp=2,cp=2", "dp=2,pp=2,tp=2"]
    {
        let plain = Parallelism { micros: 2, ..mesh(text) };
        let tp = text.contains("tp");
        setups.push(Parallelism {
            sequence: tp,
            exchange: ContextExchange::Ulysses,
            sharding: Sharding::Fsdp { prefetch: true },
            ..plain.clone()
        });
        setups.push(plain);
    }
    check(&small(), &setups);
    check(&Recipe { recompute: true, clip: Some(0.5), ..small() }, &setups[..2]);
}

/// To the byte, on every rank: activations that wait, and what leaves a rank.
#[test]
fn bytes_of_activations_and_of_messages_are_the_formulas() {
    let ulysses = Parallelism { exchange: ContextExchange::Ulysses, ..mesh("cp=2") };
    let sequence = Parallelism { sequence: true, ..mesh("tp=2") };
    let zero3 = Parallelism { sharding: Sharding::Fsdp { prefetch: true }, ..mesh("dp=2") };
    let plain = ["", "tp=2", "pp=2", "cp=2", "dp=2,tp=2"].map(mesh);
    for setup in plain.into_iter().chain([ulysses, sequence, zero3]) {
        for recompute in [false, true] {
            let setup = Parallelism { micros: 4, order: SumOrder::Fast, ..setup.clone() };
            let task = Recipe { steps: 2, recompute, ..small() };
            let run = train::<f32>(&task, &setup);
            for (rank, seen) in run.seen.iter().enumerate() {
                let site = RankTheory {
                    config: &task.config,
                    setup: &setup,
                    place: setup.mesh.place(rank),
                    rows: task.rows,
                    element: 4,
                    recompute,
                };
                let held = site.activations(&seen.routing);
                assert_eq!(seen.outcome.peaks.activations, held, "rank {rank} of {setup:?}");
                assert_eq!(seen.sent, site.traffic(&seen.routing), "rank {rank} of {setup:?}");
                assert_eq!(seen.bytes.weights, stored(&setup, &site), "rank {rank} of {setup:?}");
            }
        }
    }
}

/// Bytes of weights that a rank keeps.
fn stored(setup: &Parallelism, site: &RankTheory<'_>) -> usize {
    let sharded = matches!(setup.sharding, Sharding::Fsdp { .. });
    4 * site.parameters() / if sharded { 2 } else { 1 }
}

#[test]
fn what_a_llama_cannot_have_is_refused_in_a_sentence() {
    let said = |setup: &Parallelism| setup.check(&small().config, 8).unwrap_err();
    assert_eq!(
        said(&mesh("tp=4")),
        "each rank of tp has whole heads of keys, and 2 are no multiple of tp=4: \
         give --kv-heads 4, or tp=2 in --mesh"
    );
    let of = |kv_heads, change: fn(&mut Config)| {
        let mut config =
            Config { architecture: Architecture::Llama { kv_heads }, ..Config::default() };
        change(&mut config);
        config.check().unwrap_err()
    };
    assert_eq!(
        of(3, |_| ()),
        "--kv-heads 3: as many queries use each head of keys, and 4 heads are no multiple of it: \
         give --kv-heads 2"
    );
    assert!(of(0, |_| ()).ends_with("give --kv-heads 1"));
    assert_eq!(
        of(2, |config| config.experts = 4),
        "--experts 4: the blocks of --model llama have one feed-forward part each: \
         leave out --experts, or give --model gpt"
    );
    assert_eq!(
        of(2, |config| config.width = 12),
        "--model llama turns pairs of numbers by their position, and a head of 3 has an odd number \
         of them: give --width 24"
    );
}
