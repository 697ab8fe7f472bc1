//! Text that streams from a folder: the same rows as from memory, in little memory, and no wrong
//! row whatever happens to its files.

use maypole_trainer_kernels::counting::CountingAllocator;

/// Counts the memory of each rank.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[path = "../support/mod.rs"]
mod support;

mod command;
mod damage;
mod memory;
mod ranks;
mod rows;

use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::stream::DataError;
use maypole_trainer::train::stream::prepare::prepare;
use maypole_trainer::train::stream::shards::Shards;
use maypole_trainer::train::stream::sources::Sources;
use std::fs;
use std::path::{Path, PathBuf};

/// A play, whose apostrophes are characters of three bytes.
fn play() -> String {
    include_str!("../../text/hamlet.txt").replace('\'', "\u{2019}")
}

/// Writes `text` to a folder, in files that are cut at these characters; the first name sorts last
/// among those that a folder lists.
fn cut(folder: &Path, text: &str, at: &[usize]) -> PathBuf {
    let data = folder.join("data");
    fs::create_dir_all(data.join("b")).unwrap();
    let characters: Vec<char> = text.chars().collect();
    let mut from = 0;
    for (nth, end) in at.iter().chain([&characters.len()]).enumerate() {
        let name = ["a.txt", "b/1.txt", "b/2.txt", "c.txt"][nth];
        fs::write(data.join(name), characters[from..*end].iter().collect::<String>()).unwrap();
        from = *end;
    }
    fs::write(data.join(".hidden"), [0xff]).unwrap();
    data
}

/// The text at `data` as tokens, in shards of `each`, by one process.
fn tokens(data: &Path, cache: &Path, bpe: &Bpe, each: usize) -> Result<Shards, DataError> {
    prepare((&Sources::list(data)?, cache), bpe, each, None, &mut |_| ())
}
