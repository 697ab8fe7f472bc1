//! The meshes of the tour: each axis alone, and several together.

use crate::compare::Recipe;
use crate::tour::bits::{heads_anywhere, tokens_divided_or_not};
use crate::tour::meshes::{MeshCheck, ROWS, recipe};
use crate::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::text::{HAMLET, Text};

/// The greatest difference of losses, norms and weights where sums are in another order.
const CLOSE: f64 = 1e-5;
/// The greatest difference of losses, norms and weights where only experts are on other ranks.
const EXPERTS: f64 = 1e-6;
/// Buckets of a unit each, so that there are sums to overlap.
const OVERLAPPED: Sharding = Sharding::Replicated { bucket: Some(4_000), overlap: true };
const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

/// Checks of each axis alone, and of several axes together.
pub fn checks() -> Vec<MeshCheck> {
    let setup =
        |mesh: &str| Parallelism::of(Mesh::parse(mesh).expect("the tour names valid meshes"));
    let check = |axis, setup| MeshCheck {
        axis,
        recipe: recipe(),
        setup,
        bound: CLOSE,
        also: None,
        plant: None,
        narrow: None,
        copies_state: false,
    };
    let sequence = |mesh| Parallelism { sequence: true, ..setup(mesh) };
    let pipeline = |mesh, schedule| Parallelism { schedule, micros: 8, ..setup(mesh) };
    let bits = |axis, setup| MeshCheck { bound: 0.0, ..check(axis, setup) };
    let one_by_one = PipelineSchedule::OneForwardOneBackward;
    let router = Router { experts: 4, top: 2, group: 8, capacity: None, balance: 0.01 };
    let experts = |axis, mesh| MeshCheck {
        recipe: with_config(Config { experts: 4, layers: 2, ..Config::default() }),
        ..check(axis, Parallelism { router: Some(router), ..setup(mesh) })
    };
    // With pretended times theory gives the bytes of each rank in advance.
    let by_speed = |axis, setup, seconds| {
        let clock = SpeedClock::Pretended(seconds);
        let division = RowDivision::BySpeed { every: 1, clock };
        MeshCheck { recipe: Recipe { division, ..recipe() }, ..check(axis, setup) }
    };
    let three_and_one = Some(vec![3, 1]);
    let odd = |vocab| with_config(Config { vocab, ..Config::default() });
    let clipped = |check: MeshCheck| MeshCheck {
        recipe: Recipe { clip: Some(0.1), ..check.recipe },
        ..check
    };
    vec![
        check("tensor", setup("tp=2")),
        MeshCheck {
            also: Some(("tp=2", tokens_divided_or_not)),
            ..check("tensor, tokens divided", sequence("tp=2"))
        },
        // Micro-batches of one row: each rank has one half of every sequence.
        MeshCheck {
            also: Some(("tp=2", tokens_divided_or_not)),
            ..check("tensor, rows divided", Parallelism { micros: 8, ..sequence("tp=2") })
        },
        MeshCheck {
            recipe: Recipe { recompute: true, ..recipe() },
            ..check("tensor, recomputed", sequence("tp=2"))
        },
        MeshCheck { recipe: odd(257), ..check("tensor, 257 tokens", setup("tp=2")) },
        MeshCheck {
            recipe: Recipe { text: byte_pairs, ..odd(301) },
            ..check("tensor, byte pairs", setup("tp=2"))
        },
        bits("pipeline, GPipe", pipeline("pp=2", PipelineSchedule::GPipe)),
        bits("pipeline, 1F1B", pipeline("pp=2", one_by_one)),
        bits("pipeline, interleaved", pipeline("pp=2", PipelineSchedule::Interleaved(2))),
        bits("pipeline of four", pipeline("pp=4", one_by_one)),
        MeshCheck { bound: EXPERTS, ..experts("experts", "ep=2") },
        clipped(MeshCheck { bound: EXPERTS, ..experts("experts, clipped", "ep=2") }),
        full(MeshCheck { bound: EXPERTS, ..experts("experts, some full", "ep=2") }),
        moved(MeshCheck { bound: EXPERTS, ..experts("experts, moved by load", "ep=2") }),
        check("context, ring", setup("cp=2")),
        MeshCheck {
            also: Some(("forward", heads_anywhere)),
            ..check(
                "context, Ulysses",
                Parallelism { exchange: ContextExchange::Ulysses, ..setup("cp=2") },
            )
        },
        clipped(check(
            "data and tensor",
            Parallelism { sharding: OVERLAPPED, ..setup("dp=2,tp=2") },
        )),
        check("ZeRO-3 and tensor", Parallelism { sharding: FSDP, ..setup("dp=2,tp=2") }),
        check("data and pipeline", Parallelism { micros: 4, ..pipeline("dp=2,pp=2", one_by_one) }),
        check("pipeline and tensor", pipeline("pp=2,tp=2", one_by_one)),
        check(
            "data, pipeline, tensor",
            Parallelism { micros: 4, ..pipeline("dp=2,pp=2,tp=2", one_by_one) },
        ),
        by_speed("rows by speed", setup("dp=2"), vec![1.0, 2.0]),
        by_speed(
            "rows by speed, pipeline",
            Parallelism { micros: 2, ..setup("dp=2,pp=2") },
            vec![1.0, 3.0],
        ),
        bits(
            "layers by cost",
            Parallelism { layers: three_and_one, ..pipeline("pp=2", one_by_one) },
        ),
        experts("experts and tensor", "ep=2,tp=2"),
        tokens_divided(experts("experts, rows divided", "ep=2,tp=2")),
        experts("experts and context", "ep=2,cp=2"),
    ]
}

fn with_config(config: Config) -> Recipe {
    Recipe { config, ..recipe() }
}

/// The beginning of a play, encoded with as many byte pairs as the model's vocabulary has room for.
fn byte_pairs(config: &Config) -> Text {
    let play = &HAMLET[..20_000];
    let bpe = Bpe::learn(play, config.vocab);
    assert_eq!(bpe.vocab(), config.vocab, "the play has enough repeated pairs");
    Text::new(bpe.encode(play), config.context, 1)
}

/// With experts that take no more tokens than their even share.
fn full(mut check: MeshCheck) -> MeshCheck {
    check.setup.router.as_mut().expect("a check of experts").capacity = Some(1.0);
    check
}

/// With experts that move by their load.
fn moved(check: MeshCheck) -> MeshCheck {
    MeshCheck { recipe: Recipe { rebalance: Some(5), ..check.recipe }, ..check }
}

/// With sequence parallelism and micro-batches of one row.
fn tokens_divided(check: MeshCheck) -> MeshCheck {
    let micros = ROWS / check.setup.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]);
    MeshCheck { setup: Parallelism { sequence: true, micros, ..check.setup }, ..check }
}
