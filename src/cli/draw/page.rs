//! The page to step through: a schedule as one HTML file that loads nothing.
//!
//! The file has the steps of all ranks as data, and a script that runs them as the law says. A test
//! opens pages in a browser and compares what each chunk holds with a walk of the same schedules.

use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::schedule::draw::{self, writer::escaped};
use maypole::schedule::trace::{Fact, Trace};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Placement, Schedule, Span, Step};
use serde_json::{Value, json};

const TEMPLATE: &str = include_str!("page.html");

/// The page that lists the pages of a gallery.
pub(super) const INDEX: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; }
main { columns: 14rem; }
section, ul { break-inside: avoid; }
h2 { font-size: 1rem; margin: .8rem 0 0; }
ul { margin: 0; padding-left: 1.2rem; }
</style>
</head>
<body>
<h1>TITLE</h1>
<p>Each page steps through one schedule, round by round. The pages load nothing.</p>
<main>
SECTIONS</main>
</body>
</html>
"#;

/// The most ranks that stand side by side on a page.
pub(super) const MOST_RANKS: usize = 16;

/// The most bytes of a page.
pub(super) const MOST_BYTES: usize = 200_000;

/// The page of `schedules`, which do `collective`, with a timeline if there is one: a trace, and
/// what it is of.
pub(super) fn page(
    collective: Collective,
    title: &str,
    schedules: &[Schedule],
    clock: Option<&(Trace, String)>,
) -> String {
    let data = json!({
        "summary": summary(schedules),
        "reduces": collective.reduces() || collective == Collective::Barrier,
        "chunks": schedules[0].chunks,
        "held": held(collective, schedules),
        "steps": steps(schedules),
        "clock": clock.map(|(trace, told)| clock_data(trace, told)),
    });
    // A script ends at `</`, also within a text.
    let data = data.to_string().replace("</", "<\\/");
    TEMPLATE.replace("TITLE", &escaped(title)).replacen("DATA", &data, 1)
}

fn summary(schedules: &[Schedule]) -> String {
    let rounds = draw::rounds(schedules);
    let latencies = rounds.iter().flatten().flatten().max().copied().unwrap_or(0);
    let (ranks, chunks) = (schedules.len(), schedules[0].chunks);
    format!("{ranks} ranks, {chunks} chunks, {latencies} message latencies in a row")
}

/// By rank: the chunks that its buffers hold before and after.
fn held(collective: Collective, schedules: &[Schedule]) -> Vec<Value> {
    let chunks = |held: HeldChunks| {
        (0..schedules[0].chunks).filter(|chunk| held.contains(*chunk)).collect::<Vec<_>>()
    };
    let of = |rank| {
        let input = chunks(collective.input(rank));
        json!({ "rank": rank, "input": input, "output": chunks(collective.output(rank)) })
    };
    (0..schedules.len()).map(of).collect()
}

/// By rank: its steps, each with its round and, for a receive, the rank and the step that sent.
fn steps(schedules: &[Schedule]) -> Vec<Vec<Value>> {
    let rounds = draw::rounds(schedules);
    let mut senders = Senders { of: schedules.iter().map(|_| Vec::new()).collect() };
    // What gets stuck is drawn as far as it comes.
    let _stuck = walk(schedules, Placement::Apart, &mut senders);
    let step = |rank: usize, nth: usize, step: Step| {
        let round = rounds[rank][nth]?;
        let sender = senders.of[rank].iter().find(|(receive, _)| *receive == nth);
        Some(step_data(step, round, sender.map(|(_, sender)| *sender)))
    };
    let of = |(rank, schedule): (usize, &Schedule)| {
        let steps = schedule.steps.iter().enumerate();
        steps.filter_map(|(nth, one)| step(rank, nth, *one)).collect()
    };
    schedules.iter().enumerate().map(of).collect()
}

fn step_data(step: Step, round: usize, message: Option<(usize, usize)>) -> Value {
    let name = |span: Span| span.to_string();
    match step {
        Step::Send { from, to } => {
            json!({ "kind": "send", "round": round, "from": name(from), "peer": to })
        }
        Step::Recv { into, from } | Step::RecvReduce { into, from } => {
            let reduces = matches!(step, Step::RecvReduce { .. });
            let kind = if reduces { "recv_reduce" } else { "recv" };
            let into = name(into);
            json!({ "kind": kind, "round": round, "into": into, "peer": from, "message": message })
        }
        Step::Copy { from, into } | Step::Reduce { from, into } => {
            let kind = if matches!(step, Step::Copy { .. }) { "copy" } else { "reduce" };
            json!({ "kind": kind, "round": round, "from": name(from), "into": name(into) })
        }
    }
}

/// By rank: its receives, each with the rank and the step that sent the message.
struct Senders {
    of: Vec<Vec<(usize, (usize, usize))>>,
}

impl Meaning for Senders {
    type Message = (usize, usize);

    fn send(&mut self, rank: usize, step: usize, _: Span, _: usize) -> (usize, usize) {
        (rank, step)
    }

    fn receive(
        &mut self,
        rank: usize,
        step: usize,
        _: Span,
        _: usize,
        message: (usize, usize),
        _: bool,
    ) {
        self.of[rank].push((step, message));
    }

    fn local(&mut self, _: usize, _: usize, _: Span, _: Span, _: bool) {}
}

/// Lanes, and slices as [lane, start, end, peer, window, name] in nanoseconds.
fn clock_data(trace: &Trace, told: &str) -> Value {
    let number = |facts: &[(&str, Fact)], name: &str| {
        let fact = facts.iter().find(|(known, _)| *known == name);
        fact.map_or(0, |(_, fact)| if let Fact::Number(number) = fact { *number } else { 0 })
    };
    let lanes = trace.lanes.iter().map(|lane| {
        let rank: usize = lane.owner.trim_start_matches("rank ").parse().unwrap_or(0);
        json!({ "name": format!("{} {}", lane.owner, lane.part), "rank": rank })
    });
    let slices = trace.slices.iter().map(|slice| {
        let (peer, window) = (number(&slice.facts, "peer"), number(&slice.facts, "window"));
        json!([slice.lane, slice.start, slice.end, peer, window, slice.name])
    });
    let end = trace.slices.iter().map(|slice| slice.end).max().unwrap_or(1);
    let (lanes, slices): (Vec<Value>, Vec<Value>) = (lanes.collect(), slices.collect());
    json!({ "lanes": lanes, "slices": slices, "end": end, "told": told })
}
