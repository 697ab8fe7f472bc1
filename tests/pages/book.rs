//! The book and the README: code is that of the repository, links lead somewhere, and commands name existing
//! targets.
//!
//! The output of commands is compared next to the commands: in `src/cli/tests/cli/book.rs`,
//! `examples/tests/lessons.rs` and `examples/train/tests/command/book.rs`.

use crate::blocks::{
    Block, blocks, book, commands, compare_page, pages, repository, sessions, with_blocks,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The commands whose output a test program compares.
const PRINTING: [&str; 3] = ["maypole ", "cargo lesson ", "cargo train "];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of an item: from its attributes and comments to the line that ends its indentation.
fn item<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let words = ["fn", "struct", "enum", "trait", "const", "mod"];
    let names = |line: &str| {
        let follows = |word: &&str| {
            let rest = line.split_once(&format!("{word} {name}"))?.1;
            rest.starts_with(|c: char| !(c.is_alphanumeric() || c == '_')).then_some(())
        };
        !line.trim_start().starts_with("//") && words.iter().any(|word| follows(word).is_some())
    };
    let lines: Vec<&str> = source.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| names(line))?;
    let is_above =
        |line: &&&str| ["///", "#["].iter().any(|mark| line.trim_start().starts_with(mark));
    let first = at - lines[..at].iter().rev().take_while(is_above).count();
    let indent = lines[at].len() - lines[at].trim_start().len();
    let ends = |line: &&str| {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim_end();
        depth == indent && (text.ends_with('}') || text.ends_with(';') || text.ends_with(");"))
    };
    let last = at + lines[at..].iter().position(ends)?;
    let start: usize = lines[..first].iter().map(|line| line.len()).sum();
    let length: usize = lines[first..=last].iter().map(|line| line.len()).sum();
    Some(&source[start..start + length])
}

/// The lines of a range such as `3-18`, counted from 1.
fn range<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let (first, last) = name.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let lengths: Vec<usize> = source.split_inclusive('\n').map(str::len).collect();
    let start = lengths.get(..first - 1)?.iter().sum();
    let end = lengths.get(..last)?.iter().sum();
    source.get(start..end)
}

/// The text that a block with a mark `code: FILE`, `code: FILE NAME` or `code: FILE 3-18` must have.
fn code(mark: &str) -> Option<String> {
    let (path, name) = mark.strip_prefix("code: ")?.split_once(' ').map_or_else(
        || (mark.trim_start_matches("code: "), None),
        |(path, name)| (path, Some(name)),
    );
    let source = read(&repository().join(path));
    Some(match name {
        None => source,
        Some(name) => {
            let found = range(&source, name).or_else(|| item(&source, name));
            found.unwrap_or_else(|| panic!("{path} has no {name}")).to_owned()
        }
    })
}

#[test]
fn code_is_that_of_the_repository() {
    let mut compared = 0;
    for path in pages() {
        let page = read(&path);
        let right = with_blocks(&page, |block| {
            let code = code(block.mark?)?;
            compared += 1;
            Some(code)
        });
        compare_page(&path, &page, &right);
    }
    assert!(compared >= 5, "{compared} blocks show code of the repository");
}

/// Describes why no test would detect that a block is untrue.
fn unchecked(block: &Block<'_>) -> Option<&'static str> {
    let is_code = block.mark.is_some_and(|mark| mark.starts_with("code: "));
    let is_marked = block.mark.is_some();
    match block.language {
        "rust" if is_code => Some("code of the repository is not compiled again: `rust,ignore`"),
        "rust,ignore" if !is_code => Some("code that is not compiled says where it is from"),
        "text" if !is_marked => Some("text is drawn, or printed by a command in a console block"),
        "console" => sessions(block.body)
            .iter()
            .any(|(command, _)| !PRINTING.iter().any(|start| command.starts_with(start)))
            .then_some("no test runs this command; show it in a block `sh`"),
        "rust" | "rust,no_run" | "rust,ignore" | "text" | "sh" | "python" | "toml" => None,
        _ => Some("no test knows blocks of this language"),
    }
}

#[test]
fn every_block_of_the_book_is_compared_or_compiled() {
    let programs = read(&repository().join("examples/book/programs.rs"));
    for path in pages().iter().filter(|path| !path.ends_with("README.md")) {
        let page = read(path);
        let name = path.file_name().expect("a page").to_string_lossy();
        for block in blocks(&page) {
            if let Some(why) = unchecked(&block) {
                panic!("{}:{}: {why}", path.display(), block.line);
            }
            let compiled = !["rust", "rust,no_run"].contains(&block.language)
                || programs.contains(&format!("src/{name}\""));
            assert!(compiled, "{name} has Rust, and examples/book/programs.rs does not compile it");
        }
    }
}

/// The targets of the links of a page that are no addresses.
fn links(page: &str) -> Vec<String> {
    let prose = with_blocks(page, |_| Some(String::new()));
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = links.filter(|link| !link.contains("://") && !link.contains('\n'));
    local.map(str::to_owned).collect()
}

/// The anchor of a heading, as forges and mdbook write it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Describes why a link of a page leads nowhere.
fn dead(path: &Path, page: &str, link: &str) -> Option<String> {
    let (file, place) = link.split_once('#').unwrap_or((link, ""));
    let target = path.parent().expect("a page lies in a folder").join(file);
    if !file.is_empty() && !target.exists() {
        return Some(format!("{link}: there is no {}", target.display()));
    }
    let text = if file.is_empty() { page.to_owned() } else { fs::read_to_string(target).ok()? };
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
    let is_there = place.is_empty() || anchors.any(|anchor| anchor == place);
    (!is_there).then(|| format!("{link}: that page has no heading {place}"))
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut followed = 0;
    for path in pages() {
        let page = read(&path);
        for link in links(&page) {
            assert_eq!(dead(&path, &page, &link), None, "{}", path.display());
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed} links");
}

#[test]
fn every_page_is_in_the_summary_and_every_picture_on_a_page() {
    let summary = links(&read(&book().join("SUMMARY.md")));
    for path in pages().iter().filter(|path| path.starts_with(book())) {
        let name = path.file_name().expect("a page").to_string_lossy();
        assert!(name == "SUMMARY.md" || summary.contains(&name.into()), "{}", path.display());
    }
    let shown: Vec<String> = pages().iter().flat_map(|path| links(&read(path))).collect();
    for picture in fs::read_dir(book().join("pictures")).expect("the folder is there") {
        let name = picture.expect("it can be listed").file_name();
        let name = format!("pictures/{}", name.to_string_lossy());
        assert!(shown.contains(&name), "no page shows {name}");
    }
}

/// The name in a command of cargo that is no target of the workspace.
fn missing_target(command: &str, targets: &BTreeSet<(String, String)>) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "--").collect();
    if words.first() != Some(&"cargo") {
        return None;
    }
    let named = words.windows(2).filter_map(|pair| {
        let kind = match pair[0] {
            "--test" | "--example" | "--bench" | "--bin" => pair[0].trim_start_matches('-'),
            "lesson" if words[1] == "lesson" => "example",
            "-p" | "--package" => "package",
            _ => return None,
        };
        Some((kind.to_owned(), pair[1].to_owned()))
    });
    let placeholder = |name: &str| name.chars().all(|c| c.is_ascii_uppercase());
    let mut named = named.filter(|(_, name)| !placeholder(name));
    named.find(|target| !targets.contains(target)).map(|(kind, name)| format!("no {kind} {name}"))
}

/// The targets and packages of the workspace, by kind and name.
fn targets() -> BTreeSet<(String, String)> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(repository())
        .output()
        .expect("cargo starts");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut found = BTreeSet::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for package in metadata["packages"].as_array().expect("packages") {
        found.insert(("package".to_owned(), text(&package["name"])));
        for target in package["targets"].as_array().expect("targets") {
            found.insert((text(&target["kind"][0]), text(&target["name"])));
        }
    }
    found
}

#[test]
fn commands_name_targets_that_are_there() {
    let targets = targets();
    let others = ["CONTRIBUTING.md", "benches/README.md", "examples/trainer/README.md"];
    let others = others.map(|page| repository().join(page));
    for path in pages().into_iter().chain(others) {
        for command in commands(&read(&path)) {
            let missing = missing_target(&command, &targets);
            assert_eq!(missing, None, "{}: `{command}`", path.display());
        }
    }
}
