//! Reads the pages that are compared with the code: the README and the book.
//!
//! A `console` block shows commands, each after `$ `, and their output. A line `...` stands for any
//! lines. A comment before a block names its source: `<!-- code: FILE NAME -->` before a block of
//! code, `<!-- picture: COMMAND -->` before a picture.
//!
//! Several test programs compare a page, each the parts whose source it can reach. With `UPDATE=1`
//! each writes its parts.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn repository() -> &'static Path {
    // The manifest of the including crate lies at the top or below it.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|folder| folder.join("ARCHITECTURE.md").is_file()).expect("a repository")
}

/// The folder of the book's pages.
pub(crate) fn book() -> PathBuf {
    repository().join("examples/book/src")
}

/// The README and every page of the book.
pub(crate) fn pages() -> Vec<PathBuf> {
    let listed = fs::read_dir(book()).expect("the book is there");
    let mut pages: Vec<_> = listed.map(|entry| entry.expect("it can be listed").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages.push(repository().join("README.md"));
    pages.sort();
    pages
}

/// A fenced block of a page.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// The word after the fence: `console`, `rust,ignore`.
    pub(crate) language: &'a str,
    /// The comment on the line before the fence, without its frame.
    pub(crate) mark: Option<&'a str>,
    /// The lines between the fences.
    pub(crate) body: &'a str,
    /// The number of the first of these lines, from 1.
    pub(crate) line: usize,
}

/// The comment that is all of a line.
pub(crate) fn comment(line: &str) -> Option<&str> {
    Some(line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.trim())
}

/// The fenced blocks of a page, in order.
///
/// # Panics
/// If a fence is open at the end.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let (mut at, mut before) = (0, "");
    let mut open: Option<(&str, Option<&str>, usize, usize)> = None;
    for (nth, full) in page.split_inclusive('\n').enumerate() {
        let line = full.trim_end();
        let next = at + full.len();
        match (open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language, comment(before), next, nth + 2)),
            (Some((language, mark, start, line)), Some("")) => {
                found.push(Block { language, mark, body: &page[start..at], line });
                open = None;
            }
            _ => {}
        }
        (at, before) = (next, line);
    }
    assert!(open.is_none(), "a fence is open at the end of the page: {open:?}");
    found
}

/// The page with the bodies of its blocks replaced by what `renewed` returns for them; `None` keeps
/// a body.
pub(crate) fn with_blocks(
    page: &str,
    mut renewed: impl FnMut(&Block<'_>) -> Option<String>,
) -> String {
    let mut out = String::new();
    let mut copied = 0;
    for block in blocks(page) {
        let start = block.body.as_ptr() as usize - page.as_ptr() as usize;
        let Some(body) = renewed(&block) else { continue };
        out += &page[copied..start];
        out += &body;
        copied = start + block.body.len();
    }
    out + &page[copied..]
}

/// The commands of a `console` block, each with the lines below it.
pub(crate) fn sessions(body: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in body.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, output))) => output.push(line),
            (None, None) => panic!("a console block begins with a command, not with {line:?}"),
        }
    }
    for (_, output) in &mut found {
        // An empty line stands between an output and the next command.
        while output.last() == Some(&"") {
            output.pop();
        }
    }
    found
}

/// True if `shown` is `printed`, where a line `...` of `shown` stands for any lines, and `…` within a line
/// for any characters.
pub(crate) fn shows(shown: &[&str], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, _) => printed.is_empty(),
        (Some((&"...", rest)), _) => (0..=printed.len()).any(|skip| shows(rest, &printed[skip..])),
        (Some((first, rest)), Some((line, lines))) => is_like(first, line) && shows(rest, lines),
        (Some(_), None) => false,
    }
}

fn is_like(shown: &str, line: &str) -> bool {
    let Some((start, rest)) = shown.split_once('…') else { return shown == line };
    let Some(line) = line.strip_prefix(start) else { return false };
    line.char_indices().any(|(at, _)| is_like(rest, &line[at..])) || rest.is_empty()
}

/// A `console` block as it has to be: the output of each command that begins with `program` is the
/// result of `print` for the other words.
pub(crate) fn renewed(body: &str, program: &str, print: &impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for (command, shown) in sessions(body) {
        out += if out.is_empty() { "" } else { "\n" };
        out += &format!("$ {command}\n");
        let Some(arguments) = command.strip_prefix(program) else {
            shown.iter().for_each(|line| out += &format!("{line}\n"));
            continue;
        };
        let printed = print(arguments.trim());
        let printed: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
        let kept = if shows(&shown, &printed) { &shown } else { &printed };
        kept.iter().for_each(|line| out += &format!("{line}\n"));
    }
    out
}

/// Compares every `console` block of all pages with [`renewed`].
pub(crate) fn compare_consoles(program: &str, print: impl Fn(&str) -> String) {
    let mut commands = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it is listed");
        let right = with_blocks(&page, |block| {
            commands += block.body.matches(&format!("$ {program}")).count();
            (block.language == "console").then(|| renewed(block.body, program, &print))
        });
        compare_page(&path, &page, &right);
    }
    assert!(commands > 0, "no page shows what `{program}` prints");
}

/// Compares a page with its expected text. With `UPDATE` it is written.
pub(crate) fn compare_page(path: &Path, page: &str, right: &str) {
    if page == right {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, right).expect("the folder can be written");
        return;
    }
    let line = page.lines().zip(right.lines()).take_while(|(shown, right)| shown == right).count();
    let [shown, right] = [page, right].map(|text| text.lines().nth(line).unwrap_or_default());
    panic!(
        "{}:{}: the page shows\n{shown}\nand the code says\n{right}\nUPDATE=1 writes it",
        path.display(),
        line + 1
    );
}

/// The commands of a page for its reader: the lines of its `sh` and `console` blocks, and code
/// within its sentences. Variables before a command and comments after it are left out.
pub(crate) fn commands(page: &str) -> Vec<String> {
    let blocks = blocks(page);
    let shown = blocks.iter().flat_map(|block| match block.language {
        "sh" => block.body.lines().collect::<Vec<_>>(),
        "console" => sessions(block.body).into_iter().map(|(command, _)| command).collect(),
        _ => Vec::new(),
    });
    let prose = with_blocks(page, |_| Some(String::new()));
    let prose = prose.replace("```", "");
    let spans = prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    shown.chain(spans).flat_map(single_commands).collect()
}

/// The commands of a line, which `&&`, `;` or `|` join.
fn single_commands(line: &str) -> Vec<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let parts =
        line.split("&&").flat_map(|part| part.split("; ")).flat_map(|part| part.split(" | "));
    let is_variable = |word: &&str| {
        let is_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(is_name))
    };
    let commands = parts
        .map(|part| part.split_whitespace().skip_while(is_variable).collect::<Vec<_>>().join(" "));
    commands.filter(|command| !command.is_empty() && !command.starts_with('#')).collect()
}

/// Describes wrong subcommands and options of a page's commands that begin with `program`. `help`
/// returns the program's output for `SUBCOMMAND --help`, if there is this subcommand.
pub(crate) fn wrong_options(
    page: &str,
    program: &str,
    help: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let commands = commands(page);
    let arguments = commands.iter().filter_map(|command| command.strip_prefix(program));
    let wrong = arguments.filter(|arguments| arguments.starts_with(' ')).filter_map(|arguments| {
        let mut words = arguments.split_whitespace();
        let subcommand = words.next().filter(|word| word.starts_with(char::is_lowercase))?;
        let Some(help) = help(subcommand) else {
            return Some(format!("`{program}{arguments}`: there is no {subcommand}"));
        };
        let unknown = words.take_while(|word| *word != "--").find(|word| !takes(&help, word))?;
        Some(format!("`{program}{arguments}`: there is no option {unknown}"))
    });
    wrong.collect()
}

/// True if a help text lists the option that `word` is, or if `word` is none.
fn takes(help: &str, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    let is_option = name.starts_with('-') && name[1..].starts_with(|c: char| !c.is_numeric());
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    !is_option || help.split(ends).any(|listed| listed == name)
}
