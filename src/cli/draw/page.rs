//! The page to step through: a schedule as one HTML file that loads nothing.
//!
//! The file has the steps of all ranks as data, and a script that runs them by the law: round by
//! round, or by the simulator's clocks. A test opens pages in a browser and compares the contents
//! of each chunk with a walk of the same schedules.

use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::schedule::trace::{Fact, Slice, SliceKind, Trace};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Placement, Schedule, Span, Step};
use maypole_pictures::page::SteppedPage;
use maypole_pictures::rounds::StepRounds;
use serde_json::{Value, json};

/// When things happen on the simulator's clocks.
pub(super) struct Clock {
    /// The activities of ports.
    pub(super) trace: Trace,
    /// By rank, step and window: the second at which the step has ended.
    pub(super) ends: Vec<Vec<Vec<f64>>>,
    /// What is simulated, in words.
    pub(super) told: String,
}

/// The page of `schedules`, which do `collective`, with the simulator's clocks if there are any.
pub(super) fn page(
    collective: Collective,
    title: &str,
    schedules: &[Schedule],
    clock: Option<&Clock>,
) -> String {
    let data = json!({
        "summary": summary(schedules),
        "reduces": collective.reduces() || collective == Collective::Barrier,
        "chunks": schedules[0].chunks,
        "held": held(collective, schedules),
        "steps": steps(schedules, clock),
        "clock": clock.map(clock_data),
    });
    let page = SteppedPage {
        title,
        style: include_str!("steps.css"),
        body: include_str!("steps.html"),
        script: include_str!("steps.js"),
        data: &data,
    };
    page.to_string()
}

fn summary(schedules: &[Schedule]) -> String {
    let latencies = StepRounds::new(schedules).last().unwrap_or(0);
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

/// By rank: its steps, each with its round and, for a receive, the step that sent. A step
/// that writes has the nanoseconds at which its windows end, if there are clocks.
fn steps(schedules: &[Schedule], clock: Option<&Clock>) -> Vec<Vec<Value>> {
    let rounds = StepRounds::new(schedules).of;
    let mut senders = Senders { of: schedules.iter().map(|_| Vec::new()).collect() };
    // What gets stuck is drawn as far as it comes.
    let _stuck = walk(schedules, Placement::Apart, &mut senders);
    let step = |rank: usize, nth: usize, step: Step| {
        let round = rounds[rank][nth]?;
        let sender = senders.of[rank].iter().find(|(receive, _)| *receive == nth);
        let mut data = step_data(step, round, sender.map(|(_, (_, sent))| *sent));
        if let Some(clock) = clock.filter(|_| step.writes().is_some()) {
            data["ends"] = since_before(&clock.ends[rank][nth]);
        }
        Some(data)
    };
    let of = |(rank, schedule): (usize, &Schedule)| {
        let steps = schedule.steps.iter().enumerate();
        steps.filter_map(|(nth, one)| step(rank, nth, *one)).collect()
    };
    schedules.iter().enumerate().map(of).collect()
}

/// A step; `sent` is the peer's step that sends the message of a receive.
fn step_data(step: Step, round: usize, sent: Option<usize>) -> Value {
    let name = |span: Span| span.to_string();
    match step {
        Step::Send { from, to } => {
            json!({ "kind": "send", "round": round, "from": name(from), "peer": to })
        }
        Step::Recv { into, from } | Step::RecvReduce { into, from } => {
            let reduces = matches!(step, Step::RecvReduce { .. });
            let kind = if reduces { "recv_reduce" } else { "recv" };
            let into = name(into);
            json!({ "kind": kind, "round": round, "into": into, "peer": from, "sent": sent })
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

/// Nanoseconds, each since the one before; numbers are few bytes so.
fn since_before(seconds: &[f64]) -> Value {
    let times: Vec<i64> = seconds.iter().map(|time| (time * 1e9).round() as i64).collect();
    let before = std::iter::once(&0).chain(&times);
    times.iter().zip(before).map(|(time, before)| time - before).collect()
}

/// The lanes, each with its slices as [nanoseconds since the slice before, nanoseconds, window, step].
/// The step of a message is that of its sender, whose rank is a fifth number where a message arrives.
fn clock_data(Clock { trace, told, ends }: &Clock) -> Value {
    let mut slices = vec![Vec::new(); trace.lanes.len()];
    let mut until = vec![0; trace.lanes.len()];
    let mut sorted: Vec<&Slice> = trace.slices.iter().collect();
    sorted.sort_by_key(|slice| (slice.start, slice.end));
    for slice in sorted {
        let since = slice.start - until[slice.lane];
        let [peer, window, step] = ["peer", "window", "step"].map(|name| number(slice, name));
        let mut told = vec![since, slice.end - slice.start, window, step];
        if slice.kind == SliceKind::Receive {
            told.push(peer);
        }
        slices[slice.lane].push(told);
        until[slice.lane] = slice.end;
    }
    let lanes = trace.lanes.iter().zip(slices).map(|(lane, slices)| {
        let rank: usize = lane.owner.trim_start_matches("rank ").parse().unwrap_or(0);
        let name = format!("{} {}", lane.owner, lane.part);
        json!({ "name": name, "part": lane.part, "rank": rank, "slices": slices })
    });
    let windows = ends.iter().flatten().map(Vec::len).max().unwrap_or(1);
    let end = until.iter().max().copied().unwrap_or(1);
    json!({ "lanes": lanes.collect::<Value>(), "end": end, "windows": windows, "told": told })
}

fn number(slice: &Slice, name: &str) -> u64 {
    let fact = slice.facts.iter().find(|(known, _)| *known == name);
    fact.map_or(0, |(_, fact)| if let Fact::Number(number) = fact { *number } else { 0 })
}
