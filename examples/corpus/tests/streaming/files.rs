//! A play, cut into text files.

use maypole_trainer::train::text::HAMLET;
use std::fs;
use std::path::{Path, PathBuf};

/// A play, whose apostrophes are characters of three bytes.
pub(crate) fn play() -> String {
    str::from_utf8(HAMLET).unwrap().replace('\'', "\u{2019}")
}

/// Writes `text` to a folder, in files that are cut at these characters; the first name sorts last
/// among those that a folder lists.
pub(crate) fn cut(folder: &Path, text: &str, at: &[usize]) -> PathBuf {
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
