//! The trace-event format, written by hand: objects of numbers and escaped strings are all there is
//! to it.

use super::{ArrowEnd, Fact, Slice, SliceKind, Trace, TraceLane};
use std::fmt::{self, Display, Write};

/// What a file begins with. At least one event follows.
pub const HEAD: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

/// What a file ends with.
pub const TAIL: &str = "\n]}\n";

/// A whole file.
///
/// ```
/// use maypole::schedule::trace::{Trace, document};
/// assert_eq!(document(&Trace::default()), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n");
/// ```
pub fn document(trace: &Trace) -> String {
    format!("{HEAD}{}{TAIL}", events(trace))
}

/// The events alone, one a line, with commas between: to be put between [`HEAD`] and [`TAIL`], or
/// behind others and a comma. Slices come before the arrows that end in them, because viewers look
/// for the slice that is open by then.
pub fn events(trace: &Trace) -> String {
    let mut text = String::new();
    let mut named = Vec::new();
    for lane in &trace.lanes {
        if !named.contains(&lane.process) {
            named.push(lane.process);
            line(&mut text, format_args!("{}", ProcessName(lane)));
        }
        line(&mut text, format_args!("{}", ThreadName(lane)));
        line(&mut text, format_args!("{}", ThreadOrder(lane)));
    }
    for slice in &trace.slices {
        line(&mut text, format_args!("{}", Complete(&trace.lanes[slice.lane], slice)));
    }
    for end in &trace.ends {
        line(&mut text, format_args!("{}", Flow(&trace.lanes[end.lane], end)));
    }
    text
}

fn line(text: &mut String, event: fmt::Arguments<'_>) {
    if !text.is_empty() {
        text.push_str(",\n");
    }
    text.write_fmt(event).expect("a String takes all");
}

struct ProcessName<'a>(&'a TraceLane);

impl Display for ProcessName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceLane { process, process_name, .. } = self.0;
        let name = Quoted(process_name);
        write!(f, r#"{{"ph":"M","name":"process_name","pid":{process},"args":{{"name":{name}}}}}"#)
    }
}

struct ThreadName<'a>(&'a TraceLane);

impl Display for ThreadName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceLane { process, thread, owner, part, .. } = self.0;
        let name = if part.is_empty() { owner.clone() } else { format!("{owner} {part}") };
        let name = Quoted(&name);
        write!(
            f,
            r#"{{"ph":"M","name":"thread_name","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        )
    }
}

struct ThreadOrder<'a>(&'a TraceLane);

impl Display for ThreadOrder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceLane { process, thread, .. } = self.0;
        write!(
            f,
            r#"{{"ph":"M","name":"thread_sort_index","pid":{process},"tid":{thread},"args":{{"sort_index":{thread}}}}}"#
        )
    }
}

struct Complete<'a>(&'a TraceLane, &'a Slice);

impl Display for Complete<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (TraceLane { process, thread, .. }, Slice { kind, name, start, end, facts, .. }) =
            (self.0, self.1);
        // Viewers work ends out in floating point. Without a nanosecond between it and the next
        // one, or the end of the call, a slice could seem to reach into what it only touches.
        let gap = u64::from(*kind != SliceKind::Call);
        let (name, start, took) =
            (Quoted(name), Micros(*start), Micros((end - start).saturating_sub(gap)));
        write!(
            f,
            r#"{{"ph":"X","name":{name},"cat":"{}","pid":{process},"tid":{thread},"#,
            kind.name()
        )?;
        write!(f, r#""ts":{start},"dur":{took},"args":{{"#)?;
        for (nth, (name, fact)) in facts.iter().enumerate() {
            write!(f, "{}\"{name}\":{fact}", if nth > 0 { "," } else { "" })?;
        }
        f.write_str("}}")
    }
}

struct Flow<'a>(&'a TraceLane, &'a ArrowEnd);

impl Display for Flow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (TraceLane { process, thread, .. }, ArrowEnd { message, at, points_here, .. }) =
            (self.0, self.1);
        let phase = if *points_here { r#""f","bp":"e""# } else { r#""s""# };
        let at = Micros(*at);
        // Numbers of 64 bits do not survive every reader; hexadecimal strings do.
        write!(f, r#"{{"ph":{phase},"name":"message","cat":"message","id":"{message:#x}","#)?;
        write!(f, r#""pid":{process},"tid":{thread},"ts":{at}}}"#)
    }
}

impl Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Numbers(numbers) => write!(f, "{numbers:?}"),
            Self::Text(text) => write!(f, "{}", Quoted(text)),
        }
    }
}

/// Nanoseconds as microseconds, exactly.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                '\0'..' ' => write!(f, "\\u{:04x}", u32::from(letter))?,
                _ => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
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
        fn whatever_things_are_called_it_is_read_back(name in ".*") {
            let read: Value = serde_json::from_str(&document(&trace(&name))).unwrap();
            let [_, thread, _, slice, end] = read["traceEvents"].as_array().unwrap().as_slice() else { panic!("{read}") };
            prop_assert_eq!(&thread["args"]["name"], &json!(format!("{name} x")));
            prop_assert_eq!(&slice["name"], &json!(name));
            prop_assert_eq!(&slice["args"], &json!({"bytes": u64::MAX, "to": [1, 2], "operation": name}));
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
            assert_eq!(
                (&slice["ts"], &slice["dur"], &slice["ph"]),
                (&json!(1000.001), &json!(took), &json!("X"))
            );
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(Quoted("a\"\\\n\u{1}é").to_string(), "\"a\\\"\\\\\\u000a\\u0001é\"");
    }
}
