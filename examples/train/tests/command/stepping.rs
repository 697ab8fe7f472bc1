//! The page of `train plan --html`, as a browser shows it: the pass of each rank over time, the bubble,
//! keys, and the groups of a mesh.

use super::browser::{self, Browser, compare_keys};
use super::skip::skipped;
use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
use maypole_trainer::pipeline_parallel::plan::{PassKind, PipelineSchedule};
use maypole_trainer::pipeline_parallel::trace::PassSpan;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `train plan` with `options`, which writes `page`.
fn plan(options: &str, page: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.arg("plan").args(options.split_whitespace()).arg("--html").arg(page);
    command.output().expect("it starts")
}

#[track_caller]
fn planned(options: &str, page: &Path) -> String {
    let output = plan(options, page);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options}: {complaint}");
    std::fs::read_to_string(page).expect("it is written")
}

/// By rank, its pass at a time: direction, micro-batch and stage; and the micro-batches in its memory.
fn doing(spans: &[PassSpan], ranks: usize, at: f64) -> Value {
    let code = |span: &PassSpan| {
        json!([u8::from(span.op.pass == PassKind::Backward), span.op.micro, span.op.chunk])
    };
    let of = |rank: usize| {
        let mine = || spans.iter().filter(move |span| span.rank == rank);
        let pass = mine().find(|span| span.start <= at && at < span.end).map(code);
        let begun =
            mine().filter(|span| span.op.pass == PassKind::Forward && span.start <= at).count();
        let over =
            mine().filter(|span| span.op.pass == PassKind::Backward && span.end <= at).count();
        json!([pass, begun - over])
    };
    (0..ranks).map(of).collect()
}

/// JavaScript that computes the same as [`doing`].
const DOING: &str = "const doing = at => plan.passes.map((_, rank) => { \
    const pass = running(rank, at); \
    return [pass ? [pass.pass, pass.micro, pass.chunk] : null, held(rank, at).length]; });";

#[test]
fn at_every_time_the_page_shows_what_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("plan.html");
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    for (schedule, ranks, micros) in [("gpipe", 3, 5), ("1f1b", 4, 6), ("interleaved:3", 2, 4)] {
        planned(&format!("--schedule {schedule} --ranks {ranks} --micros {micros}"), &page);
        let schedule = PipelineSchedule::parse(schedule).unwrap();
        let made = schedule.plan(ranks, micros).unwrap();
        let trace = simulate(&made, equal_stages(&made)).unwrap();
        let unit = made.chunks as f64;
        let spans: Vec<PassSpan> = trace.spans.iter().map(|span| whole(*span, unit)).collect();
        browser.open(&page, "", &[]);
        browser.value(DOING);
        let end = browser.value("plan.length").as_u64().unwrap();
        assert_eq!(end, (trace.length() * unit).round() as u64);
        for at in 0..=end {
            let shown = browser.value(&format!("doing({at})"));
            assert_eq!(shown, doing(&spans, ranks, at as f64), "{} at {at}", schedule.name());
        }
        let passes = 2 * ranks * micros * made.chunks;
        let bubble = "document.querySelectorAll('#gantt .bubble').length";
        let boxes =
            browser.value("document.querySelectorAll('#gantt rect:not(pattern rect)').length");
        let hatched = browser.value(bubble).as_u64().unwrap();
        assert_eq!(boxes.as_u64().unwrap(), passes as u64 + hatched);
        // What is hatched is the share that the text names.
        let idle = "plan.passes.reduce((sum, _, rank) => sum + idle(rank, plan.length), 0) / plan.length / plan.ranks";
        let idle = browser.value(idle).as_f64().unwrap();
        assert!((idle - schedule.idle(ranks, micros)).abs() < 1e-9, "{idle}");
        assert!(browser.text("summary").contains(&format!("idle {:.1} %", 100.0 * idle)));
    }
}

fn whole(span: PassSpan, unit: f64) -> PassSpan {
    PassSpan { start: (span.start * unit).round(), end: (span.end * unit).round(), ..span }
}

#[test]
fn keys_step_and_words_say_who_waits_for_whom() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("plan.html");
    planned("--ranks 2 --micros 2", &page);
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&page, "", &[("prefers-reduced-motion", "reduce")]);
    assert_eq!(browser.text("told"), "Time 0: rank 0 forward 0. Waiting: rank 1.");
    assert!(browser.text("stage").contains("waits for rank 0"));
    let last = browser.value("view.last").as_i64().unwrap();
    compare_keys(&mut browser, last);
    browser.press("End");
    let said = "Time 9: all passes are done. Ranks have waited 33.3 % of the time so far.";
    assert_eq!(browser.text("told"), said);
    // A message goes to the rank whose pass can begin.
    browser.press("Home");
    browser.press("ArrowRight");
    assert_eq!(browser.value("document.querySelectorAll('#links line').length"), 1);
    assert_eq!(browser.value("document.getAnimations().length"), 0, "no motion");
    // Another schedule begins anew.
    browser.value("$('plan').selectedIndex = 2; $('plan').onchange()");
    assert!(browser.text("summary").starts_with("interleaved:2, 2 ranks"));
    assert_eq!(browser.value("now"), 0);
    let label = browser.value("stage[0].getAttribute('aria-label')");
    let said = "rank 0: forward pass of micro-batch 0 through its stage 0; keeps 1 micro-batches";
    assert_eq!(label, said);
}

#[test]
fn an_axis_shows_its_groups() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("mesh.html");
    let output = plan("--mesh dp=2,pp=2,tp=2", &page);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("mesh dp=2,pp=2,tp=2: 8 ranks\n  dp  [0 4]"), "{printed}");
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&page, "", &[]);
    let colours = "[...document.querySelectorAll('.place')].map(place => place.style.borderColor)";
    for (axis, groups) in [
        ("tp", "[0 1] [2 3] [4 5] [6 7]"),
        ("pp", "[0 2] [1 3] [4 6] [5 7]"),
        ("dp", "[0 4] [1 5] [2 6] [3 7]"),
    ] {
        browser.value(&format!("document.querySelector('[value={axis}]').click()"));
        let told = browser.text("axis");
        assert!(told.starts_with(axis) && told.ends_with(groups), "{told}");
        let shown: Vec<String> = serde_json::from_value(browser.value(colours)).unwrap();
        let groups: Vec<Vec<usize>> = groups
            .trim_matches(['[', ']'])
            .split("] [")
            .map(|group| group.split(' ').map(|rank| rank.parse().unwrap()).collect())
            .collect();
        let group_of = |rank: usize| groups.iter().position(|group| group.contains(&rank));
        for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))) {
            let alike = shown[a] == shown[b];
            assert_eq!(alike, group_of(a) == group_of(b), "{axis}: ranks {a} and {b}");
        }
    }
    let label = browser.value("document.querySelectorAll('.place')[5].getAttribute('aria-label')");
    assert_eq!(label, "rank 5, dp 1, pp 0, tp 1: talks along dp with ranks 1");
}

#[test]
fn pages_load_nothing_and_are_small() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("plan.html");
    for (options, most) in [
        ("--ranks 4", 30_000),
        ("--ranks 16 --micros 48", 200_000),
        ("--mesh dp=4,pp=8,cp=2,tp=4", 50_000),
    ] {
        let text = planned(options, &page);
        assert!(text.len() <= most, "{options}: {} bytes", text.len());
        for load in ["src=", "href=", "@import", "fetch(", "https:"] {
            assert!(!text.contains(load), "{options} has {load}");
        }
        // The one address is a pattern of the page itself.
        assert_eq!(text.matches("url(").count(), text.matches("url(#hatch)").count());
        assert!(text.contains("prefers-reduced-motion") && text.contains("prefers-color-scheme"));
    }
}

#[test]
fn what_no_page_shows_is_refused() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("plan.html");
    for (options, why) in [
        ("--ranks 17", "--ranks 17: a page of --html shows at most 16 ranks"),
        ("--mesh dp=300", "--mesh has 300 ranks: a page of --html shows at most 256"),
        ("--mesh dp=2 --ranks 2", "cannot be used with"),
        ("--mesh dq=2", "'dq' is no axis"),
        ("--ranks 16 --micros 512", "of at most 200000: give fewer --ranks or --micros"),
    ] {
        let output = plan(options, &page);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{options}: {said}");
        assert!(!page.exists(), "{options}");
    }
}
