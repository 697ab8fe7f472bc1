//! Every change of a checkpoint's file is found before a number of it is used, and the error names
//! the file.

use maypole::Communicator;
use maypole_lab::compare::Recipe;
use maypole_lab::export::export;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::random::random;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::optim::Rule;
use std::fs;
use std::path::{Path, PathBuf};

const RANKS: usize = 3;
const ZERO1: Sharding = Sharding::Zero1;

fn recipe() -> Recipe {
    let config = Config {
        vocab: 128,
        context: 8,
        width: 8,
        heads: 2,
        layers: 1,
        experts: 0,
        ..Config::default()
    };
    Recipe { rule: Rule::ADAMW, steps: 1, rows: 6, config, ..Recipe::default() }
}

/// A checkpoint of three ranks, and its files.
fn checkpoint(folder: &Path) -> (PathBuf, Vec<PathBuf>) {
    let places = Communicator::run_local(RANKS, |comm| {
        let mut trainer = recipe().trainer(comm, 1, ZERO1).unwrap();
        recipe().follow(&mut trainer, |_, _, _| Ok(())).unwrap();
        save(&mut trainer, folder).unwrap()
    });
    let place = places.into_iter().next().unwrap();
    let mut files: Vec<PathBuf> =
        fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), RANKS + 1);
    (place, files)
}

/// The error of a run of one rank that loads the checkpoint in `place`, if it is refused.
fn refusal(place: &Path) -> Option<CheckpointError> {
    let mut trainer = recipe().alone_on(Sharding::default());
    let before = trainer.parts.store.all_weights().unwrap();
    let error = load(&mut trainer, place).err();
    if error.is_some() {
        assert!(trainer.parts.store.all_weights().unwrap() == before && trainer.step == 0);
    }
    error
}

fn rank_of(file: &Path) -> Option<usize> {
    file.file_stem()?.to_str()?.strip_prefix("rank-")?.parse().ok()
}

/// Fails unless `file` is refused by its name, and with its rank if it has one.
fn refused(place: &Path, file: &Path, what: &str) -> String {
    let error = refusal(place).unwrap_or_else(|| panic!("{what} was not found"));
    let CheckpointError::Damaged { path, rank, .. } = &error else { panic!("{what}: {error}") };
    assert_eq!((path.as_path(), *rank), (file, rank_of(file)), "{what}: {error}");
    let sentence = error.to_string();
    assert!(sentence.contains(file.to_str().unwrap()), "{sentence}");
    assert!(sentence.contains(&format!("remove {}", place.display())), "{sentence}");
    if let Some(rank) = rank {
        assert!(sentence.contains(&format!("the part of rank {rank}")), "{sentence}");
    }
    sentence
}

#[test]
fn each_of_a_thousand_flipped_bits_is_found_in_whatever_file_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (place, files) = checkpoint(folder.path());
    let out = folder.path().join("model.safetensors");
    for nth in 0..1_000 {
        let file = &files[(random(1, nth) % files.len() as u64) as usize];
        let good = fs::read(file).unwrap();
        let bit = (random(2, nth) % (8 * good.len() as u64)) as usize;
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bad).unwrap();
        refused(&place, file, &format!("flip {nth}, bit {bit} of {}", file.display()));
        if nth % 10 == 0 {
            let error = export(&place, &out).unwrap_err();
            assert!(matches!(&error, CheckpointError::Damaged { path, .. } if path == file));
            assert!(!out.exists());
        }
        fs::write(file, &good).unwrap();
    }
    assert!(refusal(&place).is_none(), "the files are as they were");
}

#[test]
fn files_that_are_cut_lengthened_lost_emptied_or_exchanged_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (place, files) = checkpoint(folder.path());
    for file in &files {
        let good = fs::read(file).unwrap();
        let whole = good.len();
        for length in [0, 1, 7, 64, whole / 2, whole - 65, whole - 1] {
            fs::write(file, &good[..length]).unwrap();
            refused(&place, file, &format!("{} cut to {length}", file.display()));
        }
        for more in [&b"\n"[..], b"\0", &good] {
            fs::write(file, [&good, more].concat()).unwrap();
            refused(&place, file, &format!("{} lengthened", file.display()));
        }
        fs::remove_file(file).unwrap();
        assert!(refused(&place, file, "a file that is gone").contains(": it is missing;"));
        fs::write(file, &good).unwrap();
    }
    let [manifest, first, second, third] = &files[..] else { panic!("{files:?}") };
    assert!(manifest.ends_with("manifest.json"));
    // Parts of equal length that are exchanged, and a part twice.
    let parts = [first, second, third].map(|file| fs::read(file).unwrap());
    fs::write(first, &parts[1]).unwrap();
    fs::write(second, &parts[0]).unwrap();
    let said = refused(&place, first, "parts that are exchanged");
    if parts[0].len() == parts[1].len() {
        assert!(said.contains("it is rank-001.safetensors: files were exchanged"), "{said}");
    }
    fs::write(first, &parts[0]).unwrap();
    refused(&place, second, "a part twice");
    fs::write(second, &parts[1]).unwrap();
    // The manifest of another checkpoint of the same model.
    let other = tempfile::tempdir().unwrap();
    let (_, others) = checkpoint(other.path());
    let good = fs::read(manifest).unwrap();
    fs::write(first, fs::read(third).unwrap()).unwrap();
    fs::write(manifest, fs::read(&others[0]).unwrap()).unwrap();
    refused(&place, first, "the part of another rank under another manifest");
    fs::write(first, &parts[0]).unwrap();
    fs::write(manifest, &good).unwrap();
    assert!(refusal(&place).is_none());
}

#[test]
fn a_manifest_without_a_digest_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (place, files) = checkpoint(folder.path());
    // A manifest of a build that wrote no digests.
    let old = "{\n  \"config\": {},\n  \"step\": 1,\n  \"ranks\": 3\n}";
    fs::write(&files[0], old).unwrap();
    let said = refused(&place, &files[0], "a manifest of an older build");
    assert!(said.contains("an older build wrote it"), "{said}");
}

#[test]
fn all_ranks_refuse_for_the_reason_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (place, files) = checkpoint(folder.path());
    let mut bytes = fs::read(&files[2]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&files[2], bytes).unwrap();
    let errors = Communicator::run_local(2, |comm| {
        let mut trainer = recipe().trainer(comm, 1, ZERO1).unwrap();
        load(&mut trainer, &place).unwrap_err()
    });
    let CheckpointError::Damaged { rank: Some(1), .. } = &errors[0] else { panic!("{errors:?}") };
    let CheckpointError::Rank { rank: 0, why } = &errors[1] else { panic!("{errors:?}") };
    assert_eq!(*why, errors[0].to_string());
}

#[test]
fn ranks_that_see_different_checkpoints_by_one_path_go_no_further() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let places = folders.each_ref().map(|folder| checkpoint(folder.path()).0);
    // As on a host that does not share the folder: the checkpoint of a run with one more update.
    let manifest = places[1].join("manifest.json");
    let mut other =
        maypole_trainer::train::checkpoint::manifest::Manifest::read(&places[1]).unwrap();
    other.updates += 1;
    fs::write(manifest, other.to_bytes()).unwrap();
    let errors = Communicator::run_local(2, |comm| {
        let place = &places[comm.rank()];
        let mut trainer = recipe().trainer(comm, 1, ZERO1).unwrap();
        load(&mut trainer, place).unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, CheckpointError::Unlike { rank: 1, .. }), "{error}");
    }
}
