//! Reads a trace as a viewer does, and refuses a trace that a viewer would show wrongly.

use serde_json::Value;
use std::collections::BTreeMap;

/// A file of the trace-event format.
pub(crate) struct TraceFile {
    /// Names of threads, by process and thread.
    pub(crate) lanes: BTreeMap<(u64, u64), String>,
    pub(crate) slices: Vec<Slice>,
    /// By message: the points at which it left and arrived.
    pub(crate) arrows: BTreeMap<String, (Vec<Point>, Vec<Point>)>,
}

/// A lane, and microseconds.
type Point = ((u64, u64), f64);

/// A complete event.
pub(crate) struct Slice {
    pub(crate) lane: (u64, u64),
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) facts: Value,
}

impl Slice {
    pub(crate) fn number(&self, fact: &str) -> u64 {
        self.facts[fact]
            .as_u64()
            .unwrap_or_else(|| panic!("{} has no {fact}: {}", self.name, self.facts))
    }

    /// How many ranks a list names.
    pub(crate) fn count(&self, fact: &str) -> u64 {
        self.facts[fact].as_array().map_or(0, |list| list.len() as u64)
    }
}

impl TraceFile {
    /// # Panics
    /// If it is no JSON, lacks what viewers need, has slices that overlap without nesting, or
    /// arrows that point nowhere or back in time.
    pub(crate) fn read(text: &str) -> Self {
        let file: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let mut read = Self { lanes: BTreeMap::new(), slices: Vec::new(), arrows: BTreeMap::new() };
        for event in file["traceEvents"].as_array().expect("a list of events") {
            read.add(event);
        }
        read.check_lanes();
        read.check_arrows();
        read
    }

    fn add(&mut self, event: &Value) {
        let name = event["name"].as_str().expect("events have names");
        let lane = || (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let time = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("no {key}: {event}"));
        match event["ph"].as_str().expect("events have phases") {
            "M" if name == "thread_name" => {
                self.lanes.insert(lane(), event["args"]["name"].as_str().unwrap().to_owned());
            }
            "M" => {}
            "X" => self.slices.push(Slice {
                lane: lane(),
                name: name.to_owned(),
                kind: event["cat"].as_str().unwrap().to_owned(),
                start: time("ts"),
                end: time("ts") + time("dur"),
                facts: event["args"].clone(),
            }),
            end @ ("s" | "f") => {
                let id = event["id"].as_str().expect("arrows have ids");
                let digits = id.strip_prefix("0x").expect("viewers read hexadecimal numbers");
                u64::from_str_radix(digits, 16).unwrap();
                let ends = self.arrows.entry(id.to_owned()).or_default();
                let ends = if end == "s" { &mut ends.0 } else { &mut ends.1 };
                ends.push((lane(), time("ts")));
            }
            other => panic!("phase {other}: {event}"),
        }
    }

    /// Slices of a lane follow one another or lie within one another.
    fn check_lanes(&self) {
        for lane in self.lanes.keys() {
            let mut slices: Vec<&Slice> =
                self.slices.iter().filter(|slice| slice.lane == *lane).collect();
            slices.sort_by(|a, b| a.start.total_cmp(&b.start).then(b.end.total_cmp(&a.end)));
            let mut open: Vec<&Slice> = Vec::new();
            for slice in slices {
                // Ends are computed in floating point and compared without tolerance, as viewers
                // do.
                while open.last().is_some_and(|outer| outer.end <= slice.start) {
                    open.pop();
                }
                let fits =
                    open.last().is_none_or(|outer| outer.kind == "call" && slice.end <= outer.end);
                assert!(fits, "{lane:?}: {} overlaps {}", slice.name, open.last().unwrap().name);
                open.push(slice);
            }
        }
        assert!(
            self.slices.iter().all(|slice| self.lanes.contains_key(&slice.lane)),
            "a lane has no name"
        );
    }

    fn check_arrows(&self) {
        for (id, (from, to)) in &self.arrows {
            let ([from], [to]) = (&from[..], &to[..]) else {
                panic!("message {id}: from {from:?} to {to:?}")
            };
            assert!(from.1 <= to.1 && from.0 != to.0, "message {id} goes from {from:?} to {to:?}");
            for (lane, at) in [from, to] {
                let covers =
                    |slice: &Slice| slice.lane == *lane && slice.start <= *at && *at <= slice.end;
                assert!(
                    self.slices.iter().any(covers),
                    "message {id} ends outside of everything: {lane:?} at {at}"
                );
            }
        }
    }

    /// Slices of a kind in lanes whose name begins with `owner`.
    pub(crate) fn of(&self, owner: &str, kind: &str) -> Vec<&Slice> {
        let owns =
            |slice: &&Slice| slice.kind == kind && self.lanes[&slice.lane].starts_with(owner);
        self.slices.iter().filter(owns).collect()
    }
}
