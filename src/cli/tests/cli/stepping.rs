//! Pages to step through show the same as a walk of the same schedules when a browser runs them,
//! and obey keys.

use super::browser::{self, Browser, compare_keys};
use super::{printed, run, skip::skipped, text};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, input};
use maypole_pictures::clocks::{Cost, Ports, activities};
use maypole_pictures::rounds::StepRounds;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The step that wrote a span, and its contents from then on.
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

/// What the walk of `schedules` writes, in the order of the steps.
fn written(collective: Collective, schedules: &[Schedule]) -> Written {
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
    written
}

impl Written {
    /// The contents of all ranks after the steps for which `is_over` is true, by rank and step.
    fn state(&self, ranks: usize, is_over: impl Fn(usize, usize) -> bool) -> Value {
        let mut state = vec![serde_json::Map::new(); ranks];
        for ((rank, span), writes) in &self.spans {
            let is_done = |step: usize| span.buffer == Buffer::Input || is_over(*rank, step);
            let Some((_, symbols)) = writes.iter().rfind(|(step, _)| is_done(*step)) else {
                continue;
            };
            let pairs: Vec<_> = symbols.iter().map(|one| json!([one.rank, one.chunk])).collect();
            state[*rank].insert(span.to_string(), pairs.into());
        }
        Value::from_iter(state)
    }
}

/// The contents after every round: before the call, after round 0, ...
fn after_rounds(collective: Collective, schedules: &[Schedule]) -> Value {
    let written = written(collective, schedules);
    let found = StepRounds::new(schedules);
    let (rounds, last) = (&found.of, found.last().map_or(0, |last| last + 1));
    let state = |done: usize| {
        written.state(schedules.len(), |rank, step| rounds[rank][step].is_some_and(|at| at < done))
    };
    Value::from_iter((0..=last).map(state))
}

/// JavaScript: the contents of one window of all chunks at a step of the page.
const CONTENTS: &str = "const contents = (step, window) => data.steps.map((_, rank) => \
    Object.fromEntries(chunksOf(rank).map(name => [name, mode.windows(rank, name, step)[window]])\
    .filter(([, held]) => held)));";

#[test]
fn a_browser_shows_what_a_walk_of_the_schedules_says() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    for algorithm in Algorithm::ALL {
        let collective = algorithm.collectives()[0].with_root(1);
        let ranks = if algorithm == Algorithm::HalvingDoubling { 8 } else { 5 };
        let Some(schedules) = algorithm.schedules(collective, ranks) else { continue };
        let page = folder.path().join(format!("{algorithm}.html"));
        let (name, file) = (collective.option_name(), page.display());
        printed(&format!("draw {name} -a {algorithm} -n {ranks} --root 1 --html {file}"));
        browser.open(&page, "", &[]);
        browser.value(CONTENTS);
        let states = "[...Array(view.last + 2).keys()].map(nth => contents(nth - 1, 0))";
        let states = browser.value(states);
        assert_eq!(states, after_rounds(collective, &schedules), "{algorithm}, {name}");
    }
}

/// At every moment of the clocks, each window of each chunk holds the results of the steps that
/// have ended until then.
#[test]
fn the_clocks_show_what_each_window_of_a_chunk_holds() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    for (name, algorithm, ranks, windows) in
        [("broadcast", "ring", 4, 4), ("all-reduce", "tree", 5, 3), ("all-to-all", "bruck", 4, 2)]
    {
        let page = folder.path().join(format!("{name}.html"));
        let call = format!("draw {name} -a {algorithm} -n {ranks} --clock --windows {windows}");
        printed(&format!("{call} --bytes 4000 --gamma 1e-9 --html {}", page.display()));
        let collective: Collective = name.parse().unwrap();
        let schedules =
            algorithm.parse::<Algorithm>().unwrap().schedules(collective, ranks).unwrap();
        let cost = Cost { alpha: 20e-6, beta: 0.8e-9, gamma: 1e-9, ports: Ports::Single };
        let layout = Layout::even(4000, schedules[0].chunks);
        let ends = activities(&schedules, &layout, 1, windows, cost).unwrap().ends;
        let written = written(collective, &schedules);
        browser.open(&page, "", &[]);
        browser.value(CONTENTS);
        browser.value(
            "$('mode').selectedIndex = 1; $('mode').onchange(); document.activeElement.blur()",
        );
        let moments = browser.value("mode.moments");
        let moments: Vec<u64> = serde_json::from_value(moments).unwrap();
        assert!(moments.len() > windows && browser.value("view.last + 1") == moments.len());
        for (step, moment) in moments.iter().enumerate() {
            let held = browser.value(&format!(
                "[...Array({windows}).keys()].map(window => contents({step}, window))"
            ));
            let at = |window: usize| {
                let is_over = |rank: usize, step: usize| {
                    (ends[rank][step][window] * 1e9).round() as u64 <= *moment
                };
                written.state(ranks, is_over)
            };
            assert_eq!(held, Value::from_iter((0..windows).map(at)), "{call} at {moment} ns");
        }
        browser.press("End");
        let state = written.state(ranks, |_, _| true);
        assert_eq!(browser.value("contents(now, 0)"), state, "{call}");
        assert!(browser.text("told").contains("0 messages are under way"), "{call}");
    }
}

#[test]
fn a_page_says_in_words_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("tree.html");
    printed(&format!("draw all-reduce -a tree -n 4 --clock --html {}", page.display()));
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&page, "#1", &[]);
    assert_eq!(browser.text("where"), "Round 1 of 4");
    assert_eq!(browser.text("told"), "Round 1: 1 message leaves; waiting: rank 0, rank 2, rank 3.");
    assert!(browser.text("stage").contains("waits for rank 1"));
    let label = |name: &str| format!("boxes[2].{name}.getAttribute('aria-label')");
    assert_eq!(browser.value(&label("in0")), "in0: holds 2", "words for screen readers");
    // Of four windows of rank 1's output the first is complete, and the others are on their way.
    browser.value("$('mode').selectedIndex = 1; $('mode').onchange()");
    browser.wait_until("(go(now + 1), stage[1].textContent.includes('1/4')) || now === view.last");
    let label = browser.value("boxes[1].out0.getAttribute('aria-label')");
    let label = label.as_str().unwrap();
    assert!(label.starts_with("out0: window 0 holds ") && label.contains("window 3"), "{label}");
    assert!(browser.text("told").contains("ports are busy"));
}

/// The keys that the page names, pressed; they belong to a slider or a list while that has the focus.
#[test]
fn keys_step_play_and_jump() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("ring.html");
    printed(&format!("draw all-reduce -a ring -n 4 --clock --html {}", page.display()));
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&page, "", &[("prefers-reduced-motion", "reduce")]);
    compare_keys(&mut browser, 6);
    browser.value("$('which').focus()");
    browser.press("End");
    assert_eq!(browser.text("where"), "Before the call", "a list has its keys to itself");
    browser.value("document.activeElement.blur()");
    browser.value("$('mode').selectedIndex = 1; $('mode').onchange()");
    let last = browser.value("view.last").as_i64().unwrap();
    browser.press("End");
    browser.press("ArrowLeft");
    assert_eq!(browser.value("now"), last - 1);
    browser.press("Home");
    assert_eq!(browser.text("where").split(" of").next(), Some("0.00 us"));
}

/// Colours follow the reader's, and dots move only where motion is welcome.
#[test]
fn pages_follow_the_colours_and_the_motion_that_readers_want() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("shot.html");
    printed(&format!("draw all-reduce -a one-shot -n 3 --html {}", page.display()));
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    let mut backs = Vec::new();
    for (colours, motion, moving) in [("light", "no-preference", 6), ("dark", "reduce", 0)] {
        let media = [("prefers-color-scheme", colours), ("prefers-reduced-motion", motion)];
        browser.open(&page, "#0", &media);
        assert_eq!(browser.value("document.getAnimations().length"), moving, "{motion}");
        backs.push(browser.value("getComputedStyle(document.body).backgroundColor"));
        let part = "[...document.querySelectorAll('.bar i[style]')].every(i => i.offsetWidth > 20)";
        assert_eq!(browser.value(part), true, "bars can be seen");
    }
    assert_eq!(backs, ["rgb(255, 255, 255)", "rgb(21, 25, 28)"]);
}

#[test]
fn pages_load_nothing_and_are_small() {
    for (line, most) in [
        ("draw all-reduce -a ring -n 4 --html -", 40_000),
        ("draw all-to-all -a bruck -n 16 --clock --html -", 200_000),
        ("draw all-reduce -a ring -n 16 --clock --html -", 200_000),
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
