//! Pages to step through show what a walk of the same schedules says, as a browser runs them.

use super::{printed, run, skip::skipped, text};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Placement, Schedule, Span, draw, input};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The step that wrote a span, and what the span holds from then on.
type Write = (usize, Vec<Symbol>);

/// What each span of each rank holds after each step that writes it.
struct Written {
    /// By rank and span.
    spans: BTreeMap<(usize, Span), Vec<Write>>,
}

impl Written {
    fn content(&self, rank: usize, span: Span) -> Vec<Symbol> {
        let last = self.spans.get(&(rank, span)).and_then(|writes| writes.last());
        last.map(|(_, symbols)| symbols.clone()).unwrap_or_default()
    }

    fn write(&mut self, rank: usize, step: usize, into: Span, new: Vec<Symbol>, reduce: bool) {
        let mut symbols = if reduce { self.content(rank, into) } else { Vec::new() };
        let unknown: Vec<Symbol> = new.into_iter().filter(|one| !symbols.contains(one)).collect();
        symbols.extend(unknown);
        self.spans.entry((rank, into)).or_default().push((step, symbols));
    }
}

impl Meaning for Written {
    type Message = Vec<Symbol>;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> Vec<Symbol> {
        self.content(rank, from)
    }

    fn receive(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        _: usize,
        message: Vec<Symbol>,
        reduce: bool,
    ) {
        self.write(rank, step, into, message, reduce);
    }

    fn local(&mut self, rank: usize, step: usize, from: Span, into: Span, reduce: bool) {
        let content = self.content(rank, from);
        self.write(rank, step, into, content, reduce);
    }
}

/// The contents after every round, as a page prints them: before the call, after round 0, ...
fn walked(collective: Collective, schedules: &[Schedule]) -> Value {
    let mut written = Written { spans: BTreeMap::new() };
    for (rank, schedule) in schedules.iter().enumerate() {
        for chunk in 0..schedule.chunks {
            if collective.input(rank).contains(chunk) {
                let own = (0, vec![Symbol { rank, chunk }]);
                written.spans.insert((rank, input(chunk)), vec![own]);
            }
        }
    }
    walk(schedules, Placement::Apart, &mut written).expect("it is proved");
    let rounds = draw::rounds(schedules);
    let last = rounds.iter().flatten().flatten().max().map_or(0, |last| last + 1);
    let state = |done: usize| {
        let mut ranks = vec![serde_json::Map::new(); schedules.len()];
        for ((rank, span), writes) in &written.spans {
            let is_input = span.buffer == maypole::schedule::Buffer::Input;
            let is_done = |step: usize| is_input || rounds[*rank][step].is_some_and(|at| at < done);
            let Some((_, symbols)) = writes.iter().rfind(|(step, _)| is_done(*step)) else {
                continue;
            };
            let pairs: Vec<_> = symbols.iter().map(|one| json!([one.rank, one.chunk])).collect();
            ranks[*rank].insert(span.to_string(), pairs.into());
        }
        Value::from_iter(ranks)
    };
    Value::from_iter((0..=last).map(state))
}

/// What Chromium shows of a page; `None` where there is no Chromium.
fn browsed(page: &Path, place: &str) -> Option<String> {
    let profile = page.with_extension("profile");
    let options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"];
    let output = Command::new("timeout")
        .args(["60", "chromium"])
        .args(options)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}#{place}", page.display()))
        .output()
        .expect("timeout starts");
    // 127: there is no such program.
    if output.status.code() == Some(127) {
        return None;
    }
    assert!(output.status.success(), "{}: {}", page.display(), text(&output.stderr));
    Some(text(&output.stdout))
}

/// The text of the element `id` of a page.
fn shown<'a>(dom: &'a str, id: &str) -> &'a str {
    let (_, rest) = dom.split_once(&format!("id=\"{id}\"")).expect("the page has the element");
    rest.split_once('>').and_then(|(_, rest)| rest.split('<').next()).unwrap_or_default()
}

#[test]
fn a_browser_shows_what_a_walk_of_the_schedules_says() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in Algorithm::ALL {
        let collective = algorithm.collectives()[0].with_root(1);
        let ranks = if algorithm == Algorithm::HalvingDoubling { 8 } else { 5 };
        let Some(schedules) = algorithm.schedules(collective, ranks) else { continue };
        let page = folder.path().join(format!("{algorithm}.html"));
        let (name, file) = (collective.option_name(), page.display());
        printed(&format!("draw {name} -a {algorithm} -n {ranks} --root 1 --html {file}"));
        let Some(dom) = browsed(&page, "states") else {
            return skipped("chromium is not installed (apt-get install chromium)");
        };
        let states: Value = serde_json::from_str(shown(&dom, "states")).expect("states are JSON");
        assert_eq!(states, walked(collective, &schedules), "{algorithm}, {name}");
    }
}

#[test]
fn a_page_says_in_words_what_happens_in_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("tree.html");
    printed(&format!("draw all-reduce -a tree -n 4 --clock --html {}", page.display()));
    let Some(dom) = browsed(&page, "1") else {
        return skipped("chromium is not installed (apt-get install chromium)");
    };
    assert_eq!(shown(&dom, "where"), "Round 1 of 4");
    assert_eq!(shown(&dom, "told"), "Round 1: 1 message leaves; waiting: rank 0, rank 2, rank 3.");
    assert!(dom.contains("waits for rank 1") && dom.contains("ports are busy"));
    assert!(dom.contains("aria-label=\"in0: holds 2\""), "a chunk has words for screen readers");
}

#[test]
fn pages_load_nothing_and_are_small() {
    for (line, most) in [
        ("draw all-reduce -a ring -n 4 --html -", 40_000),
        ("draw all-to-all -a bruck -n 16 --clock --html -", 200_000),
        ("draw all-reduce -a two-shot -n 16 --html -", 200_000),
    ] {
        let page = printed(line);
        assert!(page.len() <= most, "{line}: {} bytes", page.len());
        for load in ["src=", "href=", "@import", "url(", "fetch(", "https:"] {
            assert!(!page.contains(load), "{line} has {load}");
        }
        assert!(page.contains("prefers-reduced-motion") && page.contains("prefers-color-scheme"));
    }
    let refused = run("draw all-reduce -n 17 --html -");
    assert!(text(&refused.stderr).contains("-n 17"), "{}", text(&refused.stderr));
}

#[test]
fn a_gallery_lists_a_page_of_every_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    printed(&format!("draw --gallery {} -n 4", folder.path().display()));
    let index = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    for algorithm in Algorithm::ALL {
        for collective in algorithm.collectives() {
            let file = format!("{}-{algorithm}.html", collective.option_name());
            assert!(index.contains(&file), "{file} is not listed");
            assert!(folder.path().join(&file).is_file(), "{file} is not there");
        }
    }
}
