//! The trace-event format.

use super::{ArrowEnd, Fact, Slice, SliceKind, Trace, TraceLane};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// The beginning of a file. At least one event follows.
pub const HEAD: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

/// The end of a file.
pub const TAIL: &str = "\n]}\n";

/// The text of a whole file.
///
/// ```
/// use maypole::schedule::trace::{Trace, document};
/// let empty = document(&Trace::default());
/// assert_eq!(empty, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n");
/// ```
pub fn document(trace: &Trace) -> String {
    format!("{HEAD}{}{TAIL}", events(trace))
}

/// The events alone, one a line, separated by commas. They belong between [`HEAD`] and [`TAIL`], or
/// after other events and a comma. Slices come before the arrows that end in them, because viewers
/// look for the slice that is open at that time.
pub fn events(trace: &Trace) -> String {
    let mut lines = Vec::new();
    let mut named = Vec::new();
    for lane in &trace.lanes {
        let name = match lane.part.is_empty() {
            true => lane.owner.clone(),
            false => format!("{} {}", lane.owner, lane.part),
        };
        if !named.contains(&lane.process) {
            named.push(lane.process);
            let process = Fact::Text(lane.process_name.clone());
            let event = TraceEvent::metadata(lane, "process_name", ("name", process));
            lines.push(written(&TraceEvent { tid: None, ..event }));
        }
        lines.push(written(&TraceEvent::metadata(lane, "thread_name", ("name", Fact::Text(name)))));
        let order = ("sort_index", Fact::Number(lane.thread));
        lines.push(written(&TraceEvent::metadata(lane, "thread_sort_index", order)));
    }
    let slices = trace.slices.iter().map(|slice| TraceEvent::slice(trace, slice));
    let arrows = trace.ends.iter().map(|end| TraceEvent::arrow(trace, end));
    lines.extend(slices.chain(arrows).map(|event| written(&event)));
    lines.join(",\n")
}

fn written(event: &impl Serialize) -> String {
    serde_json::to_string(event).expect("numbers and strings can always be written")
}

/// One event: the name or the place of a lane, a slice, or one end of an arrow. Absent fields are
/// omitted.
#[derive(Default, Serialize)]
struct TraceEvent<'a> {
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    pid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_map")]
    args: Option<Cow<'a, [(&'static str, Fact)]>>,
}

impl<'a> TraceEvent<'a> {
    fn new(lane: &TraceLane, ph: &'static str, name: &'a str) -> Self {
        Self { ph, name, pid: lane.process, tid: Some(lane.thread), ..Self::default() }
    }

    fn metadata(lane: &TraceLane, name: &'a str, value: (&'static str, Fact)) -> Self {
        Self { args: Some(vec![value].into()), ..Self::new(lane, "M", name) }
    }

    fn slice(trace: &Trace, slice: &'a Slice) -> Self {
        // Viewers compute ends in floating point. Without a nanosecond between a slice and the next
        // one, or the end of its call, it could seem to reach into its neighbour.
        let gap = u64::from(slice.kind != SliceKind::Call);
        let nanoseconds = (slice.end - slice.start).saturating_sub(gap);
        Self {
            cat: Some(slice.kind.name()),
            ts: Some(microseconds(slice.start)),
            dur: Some(microseconds(nanoseconds)),
            args: Some(Cow::Borrowed(&slice.facts)),
            ..Self::new(&trace.lanes[slice.lane], "X", &slice.name)
        }
    }

    fn arrow(trace: &Trace, end: &ArrowEnd) -> Self {
        let ph = if end.points_here { "f" } else { "s" };
        Self {
            bp: end.points_here.then_some("e"),
            cat: Some("message"),
            // Some readers lose digits of numbers of 64 bits, but none of a hexadecimal string.
            id: Some(format!("{:#x}", end.message)),
            ts: Some(microseconds(end.at)),
            ..Self::new(&trace.lanes[end.lane], ph, "message")
        }
    }
}

fn as_map<S: Serializer>(
    facts: &Option<Cow<'_, [(&'static str, Fact)]>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(facts.iter().flat_map(|facts| facts.iter()).map(|(name, fact)| (name, fact)))
}

/// Exact to the nanosecond in traces of up to a hundred days: a double has 53 bits.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn trace(name: &str) -> Trace {
        let lane = TraceLane {
            process: 1,
            process_name: "here".to_owned(),
            thread: 7,
            owner: name.to_owned(),
            part: "x".to_owned(),
        };
        let facts = vec![
            ("bytes", Fact::Number(u64::MAX)),
            ("to", Fact::Numbers(vec![1, 2])),
            ("operation", Fact::Text(name.to_owned())),
        ];
        let slice = Slice {
            lane: 0,
            kind: SliceKind::Send,
            name: name.to_owned(),
            start: 1_000_001,
            end: 1_002_500,
            mark: 'x',
            facts,
        };
        let end = ArrowEnd { message: u64::MAX, lane: 0, at: 1_002_499, points_here: true };
        Trace { lanes: vec![lane], slices: vec![slice], ends: vec![end] }
    }

    proptest! {
        #[test]
        fn every_name_is_read_back(name in ".*") {
            let read: Value = serde_json::from_str(&document(&trace(&name))).unwrap();
            let events = read["traceEvents"].as_array().unwrap();
            let [_, thread, _, slice, end] = events.as_slice() else { panic!("{read}") };
            prop_assert_eq!(&thread["args"]["name"], &json!(format!("{name} x")));
            prop_assert_eq!(&slice["name"], &json!(name));
            let facts = json!({"bytes": u64::MAX, "to": [1, 2], "operation": name});
            prop_assert_eq!(&slice["args"], &facts);
            prop_assert_eq!(&end["id"], &json!("0xffffffffffffffff"));
        }
    }

    #[test]
    fn times_are_exact_microseconds() {
        for (kind, took) in [(SliceKind::Call, 2.499), (SliceKind::Send, 2.498)] {
            let mut trace = trace("all");
            trace.slices[0].kind = kind;
            let read: Value = serde_json::from_str(&document(&trace)).unwrap();
            let slice = &read["traceEvents"][3];
            assert_eq!(slice["ts"], json!(1000.001));
            assert_eq!(slice["dur"], json!(took));
            assert_eq!(slice["ph"], json!("X"));
        }
    }
}
