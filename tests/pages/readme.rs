//! Compares the README with the code. `UPDATE=1 cargo test --test pages` writes it anew.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{schedule::draw, world::launch};
use std::fs;
use std::path::{Path, PathBuf};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

/// Checks that the README has `found` between `<!-- name -->` and `<!-- end -->`.
fn holds(name: &str, found: &str) {
    let page = fs::read_to_string(README).unwrap();
    let mark = format!("<!-- {name} -->\n");
    let (before, rest) =
        page.split_once(&mark).unwrap_or_else(|| panic!("the README has no mark {name}"));
    let (shown, after) = rest.split_once("<!-- end -->").unwrap();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(README, format!("{before}{mark}{found}<!-- end -->{after}")).unwrap();
    } else {
        assert!(shown == found, "the README's {name} differs; UPDATE=1 writes this:\n{found}");
    }
}

#[test]
fn shows_what_the_code_prints() {
    let ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
    holds("drawing", &format!("```text\n{}```\n", draw::text(&ring)));
    holds("variables", &launch::variables_as_markdown());
}

#[test]
fn lists_every_algorithm_with_what_it_can_do() {
    let page = fs::read_to_string(README).unwrap();
    for algorithm in Algorithm::ALL {
        let names: Vec<_> =
            algorithm.collectives().iter().map(|collective| collective.name()).collect();
        let row = format!("| `{algorithm}` | {} |", names.join(", "));
        assert!(page.contains(&row), "the README has no row that begins {row}");
    }
}

#[test]
fn names_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    list(root, &mut paths);
    let others = ["benches", "bindings/c", "bindings/python", "examples/trainer", "transports"];
    let others = others.map(|folder| format!("{folder}/README.md"));
    let main = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned);
    for page in main.into_iter().chain(others) {
        let text = fs::read_to_string(root.join(&page)).unwrap();
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
