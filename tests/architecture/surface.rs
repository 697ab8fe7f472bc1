//! The public names of the crate `maypole`, in `tests/golden/surface.txt`: one that comes, goes or is renamed
//! shows there. The lint `unreachable_pub` keeps `pub` from names that users cannot reach.

use super::{root, whole_files, without_tests};
use std::fs;

/// The folders of `src` that are other crates.
const OTHERS: [&str; 4] = ["src/cli/", "src/cluster/", "src/pictures/", "src/testing/"];

/// A line with the public items and fields of a file, without their types.
fn names(path: &str, text: &str) -> Option<String> {
    let text = without_tests(text);
    let declared = text.lines().filter_map(|line| line.trim().strip_prefix("pub "));
    let names = declared.filter_map(|rest| rest.split(['(', '<', ':', ';', '{', '=']).next());
    let names: Vec<_> = names.map(str::trim).filter(|it| !it.starts_with("use ")).collect();
    (!names.is_empty()).then(|| format!("{path}: {}\n", names.join(", ")))
}

#[test]
fn public_names_are_those_of_the_list() {
    let mut files = whole_files("src");
    files.retain(|(path, _)| !OTHERS.iter().any(|other| path.starts_with(other)));
    files.sort();
    let shown: String = files.iter().filter_map(|(path, text)| names(path, text)).collect();
    let golden = root().join("tests/golden/surface.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&golden, &shown).unwrap();
    }
    let known = fs::read_to_string(&golden).unwrap();
    let other = shown.lines().find(|line| known.lines().all(|known| known != *line));
    assert!(shown == known, "{other:?} is new; UPDATE=1 writes {}", golden.display());
}
