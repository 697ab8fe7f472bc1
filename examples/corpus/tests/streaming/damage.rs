//! Files that are no text, and damaged shards: the error names each, with a remedy.

use crate::files::{cut, play};
use crate::tokens;
use maypole_corpus::DataError;
use maypole_corpus::sources::Sources;
use maypole_corpus::token_files::TokenFiles;
use maypole_trainer::train::bpe::Bpe;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

const EACH: usize = 20_000;

fn bytes(folder: &Path) -> Result<TokenFiles, DataError> {
    tokens(&folder.join("data"), &folder.join("cache"), &Bpe::default(), EACH)
}

/// A folder of a play that was tokenised, and its shards.
fn tokenised() -> (tempfile::TempDir, TokenFiles) {
    let folder = tempfile::tempdir().unwrap();
    cut(folder.path(), &play(), &[1_000, 2_000, 3_000]);
    let shards = bytes(folder.path()).unwrap();
    (folder, shards)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn said(error: &DataError, path: &Path, remedy: &str) {
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains(remedy), "{text}");
}

#[test]
fn a_flipped_byte_anywhere_is_found_and_its_file_named() {
    let (folder, shards) = tokenised();
    for number in 0..shards.count() {
        let path = shards.path(number);
        let length = fs::metadata(&path).unwrap().len() as usize;
        for at in [0, length / 2, length - 1] {
            flip(&path, at);
            let error = bytes(folder.path()).unwrap_err();
            assert!(matches!(error, DataError::Damaged { .. }), "{error}");
            said(&error, &path, "remove this file, and the next run writes it again");
            flip(&path, at);
        }
    }
    let index = index(folder.path());
    let length = fs::metadata(&index).unwrap().len() as usize;
    for at in 0..length {
        flip(&index, at);
        said(&bytes(folder.path()).unwrap_err(), &index, "remove this file");
        flip(&index, at);
    }
    assert_eq!(bytes(folder.path()).unwrap().fingerprint(), shards.fingerprint());
}

fn index(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder.join("cache")).unwrap().map(|it| it.unwrap().path());
    files.find(|path| path.extension().is_some_and(|it| it == "json")).unwrap()
}

#[test]
fn a_shard_that_is_removed_is_written_again_and_one_that_is_cut_short_is_named() {
    let (folder, shards) = tokenised();
    let path = shards.path(2);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[1..]).unwrap();
    said(&bytes(folder.path()).unwrap_err(), &path, "it has 19999 bytes and should have 20000");
    // What was open before finds it, too.
    let error = shards.read(0..shards.tokens(), &mut Vec::new()).unwrap_err();
    said(&error, &path, "it was cut short");
    fs::remove_file(&path).unwrap();
    said(&shards.read(50_000..50_010, &mut Vec::new()).unwrap_err(), &path, "it is gone");
    bytes(folder.path()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    fs::remove_file(index(folder.path())).unwrap();
    assert_eq!(bytes(folder.path()).unwrap().fingerprint(), shards.fingerprint());
}

#[test]
fn what_is_no_text_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(&data).unwrap();
    said(&bytes(folder.path()).unwrap_err(), &data, "give a folder of UTF-8 text files");
    let path = data.join("a.txt");
    fs::write(&path, "").unwrap();
    said(&bytes(folder.path()).unwrap_err(), &data, "give a folder of UTF-8 text files");
    // A byte of no character, before and after the end of a read buffer; a character that the file
    // truncates; a character across the end of the buffer.
    let text = |start: usize| "x".repeat(start).into_bytes();
    for (start, end, at) in [
        (0, &[0xff, 120][..], Some(0)),
        (65_535, &[0xff], Some(65_535)),
        (65_536, &[0xff, 120], Some(65_536)),
        (65_535, &[0xe2, 0x80], Some(65_535)),
        (65_535, &[0xe2, 120, 120], Some(65_535)),
        (65_535, &[0xe2, 0x80, 0x99], None),
        (65_534, &[0xe2, 0x80, 0x99], None),
    ] {
        fs::write(&path, [&text(start), end].concat()).unwrap();
        fs::write(data.join("b.txt"), [0x80]).unwrap();
        let error = bytes(folder.path()).unwrap_err();
        let expected = at.map_or(data.join("b.txt"), |_| path.clone());
        said(&error, &expected, &format!("byte {} is not UTF-8", at.unwrap_or(0)));
        // Whole shards may be there, but no index.
        let cache = fs::read_dir(folder.path().join("cache")).unwrap();
        let whole = |path: PathBuf| path.extension().is_some_and(|it| it == "tokens");
        assert!(cache.map(|it| it.unwrap().path()).all(whole), "{start}");
    }
    fs::remove_file(data.join("b.txt")).unwrap();
    let inside = tokens(&data, &data.join("cache"), &Bpe::default(), EACH).unwrap_err();
    said(&inside, &data, "give another --data-cache");
    let pipe = folder.path().join("data/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    said(&bytes(folder.path()).unwrap_err(), &pipe, "take it out of the folder");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = cut(folder.path(), &play(), &[1_000, 2_000, 90_000]);
    let grow = |path: &Path| {
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
    };
    let last = data.join("c.txt");
    // After it was listed, and while it is read.
    for begun in [false, true] {
        let sources = Sources::list(&data).unwrap();
        let mut reader = sources.read();
        let mut piece = vec![0; if begun { 95_000 } else { 10 }];
        reader.fill(&mut piece).unwrap();
        grow(&last);
        let mut rest = vec![0; 1 << 20];
        let error = reader.fill(&mut rest).unwrap_err();
        assert!(matches!(&error, DataError::Changed(path) if *path == last), "{error}");
        said(&error, &last, "let no program write to it");
    }
    let sources = Sources::list(&data).unwrap();
    let mut reader = sources.read();
    reader.fill(&mut vec![0; 95_000]).unwrap();
    OpenOptions::new().write(true).open(&last).unwrap().set_len(5).unwrap();
    assert!(matches!(reader.fill(&mut vec![0; 1 << 20]), Err(DataError::Changed(_))));
    // A file that has changed between two runs is read again.
    let before = bytes(folder.path()).unwrap();
    grow(&last);
    let after = bytes(folder.path()).unwrap();
    assert_eq!(after.tokens(), before.tokens() + 4);
    assert_ne!(after.fingerprint(), before.fingerprint());
}
