//! Every parser of a file takes any bytes: it returns a consistent value or an error in a sentence,
//! and never panics. Bytes are arbitrary, or mutations of the files in `tests/corpus`,
//! with lengths and digests made to fit, so that they pass the first check. Each test draws
//! the same bytes in every run.
//!
//! `UPDATE=1` writes the corpus anew.

use crate::mutate::{Draws, mutated, renumbered};
use maypole_lab::compare::Recipe;
use maypole_lab::mistakes::Mistake;
use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::checkpoint::manifest::{Manifest, PartDigest};
use maypole_trainer::train::checkpoint::part::{PartHeader, RankPart};
use maypole_trainer::train::checkpoint::reshard::ParameterRun;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::settings::RunRecord;
use maypole_trainer::train::text::{DataFingerprint, Text};
use std::fs;
use std::path::{Path, PathBuf};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

/// The files of the corpus whose names begin with `kind`, by name.
fn seeds(kind: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(corpus("")).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(kind);
    let mut paths: Vec<PathBuf> = entries.filter(named).collect();
    paths.sort();
    assert!(!paths.is_empty(), "tests/corpus has files of the kind {kind}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A part with these runs, whose numbers count from 0.
fn part(runs: &[[usize; 2]], averages: bool) -> RankPart {
    let count: usize = runs.iter().map(|[_, len]| len).sum();
    let numbers: Vec<f32> = (0..count).map(|nth| nth as f32).collect();
    let average = if averages { numbers.clone() } else { Vec::new() };
    let runs = runs.iter().map(|[start, len]| ParameterRun { start: *start, len: *len }).collect();
    RankPart { runs, buffers: [numbers, average.clone(), average] }
}

/// The manifest of a real checkpoint.
fn saved_manifest() -> Manifest {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        vocab: 8,
        context: 4,
        width: 4,
        heads: 1,
        layers: 1,
        experts: 2,
        ..Config::default()
    };
    let recipe = Recipe { config, rule: Rule::ADAMW, clip: Some(1.0), ..Recipe::default() };
    let mut trainer = recipe.alone_on(Sharding::default());
    trainer.settings = Some(RunRecord {
        router: Some(Router { experts: 2, top: 2, group: 4, capacity: Some(1.25), balance: 0.01 }),
        options: serde_json::Map::from_iter([("rows".to_owned(), 8.into())]),
        data: DataFingerprint { vocabulary: 3, text: u64::MAX },
        bpe: Bpe::default(),
    });
    let place = save(&mut trainer, folder.path()).unwrap();
    Manifest::read(&place).unwrap()
}

fn write_corpus() {
    let parts = [
        part(&[[0, 5], [9, 3]], true),
        part(&[[5, 4]], false),
        part(&[], true),
        part(&[[0, 1]; 20], true),
    ];
    let bytes = parts.each_ref().map(|part| part.to_bytes().unwrap());
    for (nth, bytes) in bytes.iter().enumerate() {
        fs::write(corpus(&format!("part-{nth}.safetensors")), bytes).unwrap();
    }
    let digests: Vec<PartDigest> =
        bytes.iter().enumerate().map(|(rank, bytes)| PartDigest::new(rank, bytes)).collect();
    let mut manifest = saved_manifest();
    fs::write(corpus("manifest-run.json"), manifest.to_bytes()).unwrap();
    manifest.scale = Some(LossScale::default());
    manifest.parts = digests;
    fs::write(corpus("manifest-scale.json"), manifest.to_bytes()).unwrap();
    manifest.settings = None;
    manifest.clip = None;
    fs::write(corpus("manifest-bare.json"), manifest.to_bytes()).unwrap();
}

#[test]
fn the_corpus_is_read_as_it_was_written() {
    if std::env::var_os("UPDATE").is_some() {
        write_corpus();
    }
    for bytes in seeds("part-") {
        let PartHeader { runs, starts } = header(&bytes).unwrap();
        let length = 4 * runs.iter().map(|run| run.len).sum::<usize>();
        let numbers = |start: Option<u64>| {
            let of = start.map_or(&[][..], |start| &bytes[start as usize..][..length]);
            bytemuck::pod_collect_to_vec(of)
        };
        let part = RankPart { runs, buffers: starts.map(numbers) };
        assert_eq!(part.to_bytes().unwrap(), bytes);
    }
    for bytes in seeds("manifest-") {
        let manifest = Manifest::from_bytes(&bytes).unwrap();
        // Of an older build, whose options stand in another order.
        assert_eq!(Manifest::from_bytes(&manifest.to_bytes()).unwrap(), manifest);
    }
    let run = Manifest::from_bytes(&fs::read(corpus("manifest-run.json")).unwrap()).unwrap();
    let settings = run.settings.expect("a run of `train` says what decided it");
    let expected = r#"{"fault":"norms-not-summed","precision":"f32","rows":8,"seed":1}"#;
    assert_eq!(serde_json::to_string(&settings.options).unwrap(), expected);
}

/// The bytes of a part with `header`, whose length fits.
fn framed(header: &[u8], numbers: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header, numbers].concat()
}

fn header(bytes: &[u8]) -> Result<PartHeader, String> {
    PartHeader::read(bytes, bytes.len() as u64).unwrap()
}

/// False if the bytes are no part. The tensors of a part have as many numbers as its runs, within the
/// file.
fn use_part(bytes: &[u8]) -> bool {
    let Ok(PartHeader { runs, starts }) = header(bytes) else { return false };
    let all: usize = runs.iter().map(|run| run.len).sum();
    assert!(starts[0].is_some());
    for start in starts.into_iter().flatten() {
        assert!(start as usize + 4 * all <= bytes.len());
    }
    true
}

#[test]
fn a_part_is_whole_or_refused() {
    let seeds = seeds("part-");
    let mut taken = 0;
    for nth in 0..60_000 {
        let mut draws = Draws::new(nth);
        let [seed, other] = [(); 2].map(|()| &seeds[draws.below(seeds.len())]);
        let split = 8 + u64::from_le_bytes(seed[..8].try_into().unwrap()) as usize;
        let bytes = match draws.below(4) {
            0 => draws.bytes(),
            1 => mutated(&mut draws, seed, other),
            2 => framed(&renumbered(&mut draws, &seed[8..split]), &seed[split..]),
            _ => {
                let header = mutated(&mut draws, &seed[8..split], &other[8..]);
                let numbers = match draws.below(2) {
                    0 => seed[split..].to_vec(),
                    _ => mutated(&mut draws, &seed[split..], other),
                };
                framed(&header, &numbers)
            }
        };
        taken += u32::from(use_part(&bytes));
    }
    assert!(taken > 1_000, "only {taken} mutations were parts");
}

/// A manifest with `body` before its digest, which fits.
fn sealed(body: &[u8]) -> Vec<u8> {
    let digest = blake3::hash(body).to_hex();
    [body, digest.as_bytes(), b"\"\n}\n"].concat()
}

#[test]
fn a_manifest_is_whole_or_refused() {
    let seeds = seeds("manifest-");
    let body = |seed: &[u8]| seed[..seed.len() - 68].to_vec();
    let mut taken = 0;
    for nth in 0..20_000 {
        let mut draws = Draws::new(nth);
        let [seed, other] = [(); 2].map(|()| &seeds[draws.below(seeds.len())]);
        let bytes = match draws.below(5) {
            0 => draws.bytes(),
            1 => mutated(&mut draws, seed, other),
            2 => sealed(&draws.bytes()),
            3 => sealed(&renumbered(&mut draws, &body(seed))),
            _ => sealed(&mutated(&mut draws, &body(seed), other)),
        };
        if let Ok(manifest) = Manifest::from_bytes(&bytes) {
            taken += 1;
            use_manifest(&manifest);
        }
    }
    assert!(taken > 500, "only {taken} mutations were manifests");
}

/// Checks the invariants of a valid manifest.
fn use_manifest(manifest: &Manifest) {
    manifest.config.check().unwrap();
    assert!(!manifest.parts.is_empty());
    for (rank, part) in manifest.parts.iter().enumerate() {
        assert_eq!(part.file, format!("rank-{rank:03}.safetensors"), "no path leads elsewhere");
    }
    use_schedule(&manifest.schedule, manifest.step);
    assert_eq!(Manifest::from_bytes(&manifest.to_bytes()).as_ref(), Ok(manifest));
}

fn use_schedule(schedule: &RateSchedule, step: u64) {
    for step in [0, 1, step, schedule.warm_up, schedule.steps, u64::MAX] {
        let rate = schedule.rate(step);
        let most = schedule.peak.abs().max(schedule.floor.abs());
        assert!(rate.is_nan() || rate.abs() <= 2.0 * most, "step {step} of {schedule:?}: {rate}");
    }
}

#[test]
fn names_of_schedules_meshes_and_mistakes_are_read_or_refused() {
    crate::skip::takes_turns!(4);
    let seeds = [
        "gpipe",
        "1f1b",
        "interleaved:2",
        "interleaved:18446744073709551615",
        "dp=2,pp=3,ep=4,cp=5,tp=6",
        "dp=4294967296,tp=4294967296",
        "norms-not-summed",
    ];
    let mut planned = 0;
    for nth in 0..50_000 {
        let mut draws = Draws::new(nth);
        let [seed, other] = [(); 2].map(|()| seeds[draws.below(seeds.len())].as_bytes());
        let bytes = mutated(&mut draws, seed, other);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(mesh) = Mesh::parse(&text) {
            assert!(mesh.world() > 0 && mesh.world() <= 1 << 20);
        }
        if let Ok(fault) = Mistake::parse(&text) {
            assert_eq!(fault.name(), text);
        }
        let Ok(schedule) = PipelineSchedule::parse(&text) else { continue };
        let ranks = 1 + draws.below(5);
        let micros = 1 + draws.below(9);
        if let Ok(plan) = schedule.plan(ranks, micros).and_then(|plan| {
            // Longer plans are valid too, but slow to simulate.
            if plan.chunks > 64 { Err(String::new()) } else { Ok(plan) }
        }) {
            planned += 1;
            assert!(simulate(&plan, equal_stages(&plan)).unwrap().idle().is_finite());
        }
    }
    assert!(planned > 1_000, "only {planned} mutations were schedules");
    let longest = PipelineSchedule::Interleaved(usize::MAX).plan(1, 1).unwrap_err();
    assert!(longest.contains("more than 1048576 passes"), "{longest}");
}

#[test]
fn a_vocabulary_of_any_bytes_gives_every_text_back() {
    for nth in 0..400 {
        let mut draws = Draws::new(nth);
        let piece = draws.bytes();
        let text = [piece.repeat(draws.below(20)), draws.bytes()].concat();
        let bpe = Bpe::learn(&text, 256 + draws.below(40));
        let other = mutated(&mut draws, &text, &piece);
        for text in [&text, &other] {
            let tokens = bpe.encode(text);
            assert!(tokens.iter().all(|token| (*token as usize) < bpe.vocab()));
            assert_eq!(bpe.decode(&tokens), *text);
        }
        let numbers: Vec<u32> = draws
            .bytes()
            .into_iter()
            .map(|byte| u32::from(byte).wrapping_mul(0x0101_0101))
            .collect();
        bpe.decode(&numbers);
    }
}

#[test]
fn a_text_of_any_bytes_gives_rows_that_are_in_it() {
    for nth in 0..2_000 {
        let mut draws = Draws::new(nth);
        let bytes = draws.bytes();
        let context = 1 + draws.below(12);
        if bytes.len() <= context {
            continue;
        }
        let text = Text::of_bytes(bytes.clone(), context, nth);
        let batch = text.batch(0..4, 1.0);
        for (row, targets) in batch.tokens.chunks(context).zip(batch.targets.chunks(context)) {
            assert_eq!(row[1..], targets[..context - 1]);
            let row: Vec<u8> = row.iter().map(|token| *token as u8).collect();
            assert!(bytes.windows(context).any(|window| window == row));
        }
        if let Some((train, held)) = text.divided() {
            assert!(train.batch(0..2, 1.0).rows == 2 && held.spread(1, 1).unwrap().len() == 1);
        }
    }
}

#[test]
fn a_model_that_is_too_large_to_list_is_refused() {
    let many = Config { width: 1, heads: 1, layers: 1 << 30, ..Config::default() };
    let error = many.check().unwrap_err();
    assert!(error.contains("tensors"), "{error}");
}
