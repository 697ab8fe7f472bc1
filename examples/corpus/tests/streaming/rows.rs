//! Rows from disk are rows from memory.

use crate::files::{cut, play};
use crate::support::{self, Recipe, mesh};
use crate::tokens;
use maypole::Communicator;
use maypole_trainer::model::config::Config;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::text::Text;
use std::fs;

fn equal(text: &Text, expected: &Text) {
    for step in 0..40 {
        let rows = text.part(step, 12, 0..12, 3).unwrap();
        for (batch, expected) in rows.iter().zip(expected.part(step, 12, 0..12, 3).unwrap()) {
            assert_eq!(batch.tokens, expected.tokens, "step {step}");
            assert_eq!(batch.targets, expected.targets, "step {step}");
        }
    }
    let judged = [text, expected].map(|text| text.spread(64, 8).unwrap());
    let of = |nth: usize| judged[nth].iter().flat_map(|it| it.targets.clone()).collect::<Vec<_>>();
    assert_eq!(of(0), of(1));
}

#[test]
fn a_folder_has_the_rows_of_its_text_in_memory_however_it_is_cut() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let text = play();
    // A cut in the middle of a word, and files of a single letter.
    let data = cut(folder.path(), &text, &[70_001, 70_002, 140_000]);
    let cache = folder.path().join("cache");
    let (memory, held) = Text::of_bytes(text.clone(), 32, 5).divided().unwrap();
    // Shards shorter than a row, as long as two, and longer than the text.
    for each in [20, 64, 10_007, 1 << 24] {
        let shards = tokens(&data, &cache, &Bpe::default(), each).unwrap();
        assert_eq!(shards.tokens(), text.len());
        assert_eq!(shards.count(), text.len().div_ceil(each));
        let (streamed, streamed_held) = Text::of(shards, 32, 5).divided().unwrap();
        equal(&streamed, &memory);
        equal(&streamed_held, &held);
        assert_ne!(streamed.fingerprint(), streamed_held.fingerprint());
    }
}

#[test]
fn byte_pairs_do_not_depend_on_the_files_and_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let text = play();
    let bpe = Bpe::learn(&text.as_bytes()[..20_000], 300);
    let data = cut(folder.path(), &text, &[1, 99_999, 100_000]);
    let file = folder.path().join("file.txt");
    fs::write(&file, &text).unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let cut = tokens(&data, &one, &bpe, 5_000).unwrap();
    let whole = tokens(&file, &other, &bpe, 5_000).unwrap();
    assert_eq!(cut.fingerprint(), whole.fingerprint());
    assert!(cut.tokens() < text.len() * 3 / 4, "{} tokens are hardly fewer", cut.tokens());
    let mut all = Vec::new();
    cut.read(0..cut.tokens(), &mut all).unwrap();
    assert_eq!(bpe.decode(&all), text.as_bytes());
    assert_eq!(all, bpe.encode(text.as_bytes()), "the tokens of a text in memory");
    // Another vocabulary has tokens of its own in the same folder.
    let bytes = tokens(&data, &one, &Bpe::default(), 5_000).unwrap();
    assert_ne!(bytes.fingerprint(), cut.fingerprint());
    let written = |folder| fs::read_dir(folder).unwrap().count();
    let before = written(&one);
    let again = tokens(&data, &one, &bpe, 5_000).unwrap();
    assert_eq!((again.fingerprint(), written(&one)), (cut.fingerprint(), before));
}

fn losses(task: &Recipe, setup: &Parallelism, text: &Text) -> Vec<f64> {
    let runs = Communicator::run_local(setup.mesh.world(), |comm| {
        let mut trainer = task.rank::<f64>(comm, setup).unwrap();
        let step = |_| trainer.step(text, task.rows).unwrap().report.loss;
        (0..task.steps).map(step).collect::<Vec<f64>>()
    });
    runs.into_iter().next().unwrap()
}

#[test]
fn every_mesh_trains_on_shards_as_on_memory() {
    let folder = tempfile::tempdir().unwrap();
    let text = play();
    let data = cut(folder.path(), &text, &[50_000, 60_000, 70_000]);
    let small = support::small();
    let task = Recipe { config: Config { vocab: 256, ..small.config }, ..small };
    let cache = folder.path().join("cache");
    let context = task.config.context;
    let shards = tokens(&data, &cache, &Bpe::default(), 4_096).unwrap();
    let streamed = Text::of(shards, context, 3);
    let memory = Text::of_bytes(text, context, 3);
    for axes in ["", "dp=2", "cp=2", "pp=2,tp=2"] {
        let setup = mesh(axes);
        assert_eq!(losses(&task, &setup, &streamed), losses(&task, &setup, &memory), "{axes}");
    }
}
