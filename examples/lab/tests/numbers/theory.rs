//! The bytes that a rank holds and sends are those of theory.

use crate::support::{Recipe, mesh, router, small, train, with_experts};
use maypole_lab::theory::RankTheory;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{MeshAxis, MeshCoordinates};
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};

const MESHES: [&str; 9] = [
    "",
    "tp=2",
    "tp=4",
    "pp=2",
    "pp=4",
    "ep=2",
    "ep=2,tp=2",
    "dp=2,pp=2,tp=2",
    "pp=2,ep=2,cp=2,tp=2",
];

/// Parameters at `place` by the closed formula: the table of the layout has as many.
fn formula(config: &Config, setup: &Parallelism, place: MeshCoordinates) -> usize {
    let size = |axis| setup.mesh.size(axis);
    let d = config.width;
    let tp = size(MeshAxis::Tp);
    let attention = (4 * d * d + 3 * d) / tp + d;
    let feed_forward = (8 * d * d + 4 * d) / tp + d;
    let experts = match config.experts {
        0 => feed_forward,
        experts => experts * d + experts / size(MeshAxis::Ep) * feed_forward,
    };
    let stage = place.at(MeshAxis::Pp);
    let stages = size(MeshAxis::Pp);
    let layers: usize = (0..setup.schedule.chunks())
        .map(|chunk| setup.layers(config, chunk * stages + stage).len())
        .sum();
    let lines = Shard { index: place.at(MeshAxis::Tp), of: tp }.range(config.vocab).len();
    let embed = usize::from(stage == 0) * (lines + config.context) * d;
    let head = usize::from(stage + 1 == stages) * (lines + 2) * d;
    layers * (4 * d + attention + experts) + embed + head
}

#[test]
fn parameters_of_a_place_are_the_formulas() {
    for experts in [0, 4] {
        for text in MESHES.into_iter().filter(|text| experts > 0 || !text.contains("ep")) {
            let task = Recipe { steps: 1, rows: 8, ..with_experts(small(), experts) };
            let router = (experts > 0).then(|| router(experts));
            let setup = Parallelism {
                router,
                schedule: PipelineSchedule::Interleaved(1),
                micros: 2,
                ..mesh(text)
            };
            let run = train::<f32>(&task, &setup);
            for (rank, seen) in run.seen.iter().enumerate() {
                let place = setup.mesh.place(rank);
                let site = RankTheory {
                    config: &task.config,
                    setup: &setup,
                    place,
                    rows: 8,
                    element: 4,
                    recompute: false,
                };
                assert_eq!(site.parameters(), formula(&task.config, &setup, place), "{text}");
                assert_eq!(
                    seen.bytes.weights,
                    4 * site.parameters(),
                    "{text} rank {rank}, {experts} experts"
                );
            }
        }
    }
    let config = Config::default();
    let site = RankTheory {
        config: &config,
        setup: &Parallelism::default(),
        place: mesh("").mesh.place(0),
        rows: 8,
        element: 4,
        recompute: false,
    };
    assert_eq!(site.parameters(), ParameterLayout::whole(&config).len());
}

/// To the byte, by group, on every rank: the library's counters equal the formulas.
#[test]
fn bytes_that_leave_a_rank_are_the_formulas() {
    crate::skip::takes_turns!(4);
    let meshes = [
        "tp=2",
        "pp=2",
        "pp=4",
        "cp=2",
        "dp=2",
        "ep=2",
        "dp=2,tp=2",
        "dp=2,pp=2",
        "pp=2,tp=2",
        "ep=2,tp=2",
        "ep=2,cp=2,pp=2",
    ];
    for text in meshes {
        let experts = if text.contains("ep") { 4 } else { 0 };
        let task = Recipe { steps: 2, ..with_experts(small(), experts) };
        let plain =
            Parallelism { router: (experts > 0).then(|| router(experts)), micros: 4, ..mesh(text) };
        let interleaved = PipelineSchedule::Interleaved(2);
        let mut setups = vec![plain.clone()];
        if text.contains("cp") {
            setups.push(Parallelism { exchange: ContextExchange::Ulysses, ..plain.clone() });
        }
        if text.contains("tp") {
            setups.push(Parallelism { sequence: true, ..plain.clone() });
        }
        if text.contains("dp=2") {
            let sharded = [Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp { prefetch: true }];
            setups.extend(sharded.map(|sharding| Parallelism { sharding, ..plain.clone() }));
        }
        if text.contains("pp=2") {
            let interleaved =
                |setup: &Parallelism| Parallelism { schedule: interleaved, ..setup.clone() };
            setups.extend(setups.iter().map(interleaved).collect::<Vec<_>>());
        }
        let both = setups.into_iter().flat_map(|setup| [(setup.clone(), false), (setup, true)]);
        for (setup, recompute) in both {
            let run = train::<f32>(&Recipe { recompute, ..task.clone() }, &setup);
            for (rank, seen) in run.seen.iter().enumerate() {
                let place = setup.mesh.place(rank);
                let site = RankTheory {
                    config: &task.config,
                    setup: &setup,
                    place,
                    rows: task.rows,
                    element: 4,
                    recompute,
                };
                let theory = site.traffic(&seen.routing);
                assert_eq!(seen.sent, theory, "{text} rank {rank}, {recompute}: {setup:?}");
            }
        }
    }
}
