//! Compares tables of the README and of the book with the code. `UPDATE=1 cargo test --test pages`
//! writes them anew.

use crate::blocks::{book, pages};
use maypole::algorithms::Algorithm;
use maypole::world::launch;
use std::fs;
use std::path::{Path, PathBuf};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

#[test]
fn the_book_lists_every_variable() {
    let page = book().join("ranks.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- variables -->\n").expect("the mark is there");
    let (_, after) = rest.split_once("<!-- end -->").expect("the table ends");
    let table = launch::VARIABLES_AS_MARKDOWN;
    let right = format!("{before}<!-- variables -->\n{table}<!-- end -->{after}");
    crate::blocks::compare_page(&page, &text, &right);
}

#[test]
fn lists_every_algorithm_with_what_it_can_do() {
    let page = fs::read_to_string(README).unwrap();
    let chapter = fs::read_to_string(book().join("schedules.md")).unwrap();
    for algorithm in Algorithm::ALL {
        let names: Vec<_> =
            algorithm.collectives().iter().map(|collective| collective.name()).collect();
        let row = format!("| `{algorithm}` | {} |", names.join(", "));
        assert!(page.contains(&row), "the README has no row that begins {row}");
        let cost = format!("\n| `{algorithm}` | ");
        assert!(chapter.contains(&cost), "chapter 2 has no row that begins {cost}");
    }
}

#[test]
fn names_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    list(root, &mut paths);
    let others = ["benches", "bindings/c", "bindings/python", "examples/trainer", "transports"];
    let others = others.map(|folder| format!("{folder}/README.md"));
    let main =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    let listed = main.into_iter().chain(others).map(|page| root.join(page));
    for page in listed.chain(pages()) {
        let text = fs::read_to_string(&page).unwrap();
        let page = page.display();
        let names = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.ends_with(".rs") || name.ends_with(".md"));
        for name in names.filter(|name| !name.ends_with("yours.rs")) {
            assert!(paths.iter().any(|path| path.ends_with(name)), "{page}: `{name}` is not there");
        }
    }
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true if path.ends_with("target") || path.ends_with(".git") => {}
            true => list(&path, paths),
            false => paths.push(path),
        }
    }
}
