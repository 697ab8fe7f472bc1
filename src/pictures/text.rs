//! Steps as text, so that a file, homework or another program can name them.
//!
//! A step is a line of text:
//!
//! | text | step |
//! |---|---|
//! | `send in0 to 1` | [`Step::Send`] |
//! | `recv out0 from 1` | [`Step::Recv`] |
//! | `recv-reduce out0 from 1` | [`Step::RecvReduce`] |
//! | `copy in0 to out0` | [`Step::Copy`] |
//! | `reduce in0 to out0` | [`Step::Reduce`] |
//!
//! `in`, `out` and `tmp` are the three buffers, and the number after them is a chunk. [`StepText`]
//! has the traits of serde, for TOML, JSON or another form.

use maypole::schedule::{Buffer, Span, Step};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A step that is printed, parsed and saved as a line.
///
/// ```
/// use maypole::schedule::{Step, input};
/// use maypole_pictures::text::StepText;
/// let step = Step::Send { from: input(0), to: 1 };
/// assert_eq!(StepText(step).to_string(), "send in0 to 1");
/// assert_eq!("send in0 to 1".parse(), Ok(StepText(step)));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct StepText(pub Step);

impl fmt::Display for StepText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Step::Send { from, to } => write!(f, "send {from} to {to}"),
            Step::Recv { into, from } => write!(f, "recv {into} from {from}"),
            Step::RecvReduce { into, from } => write!(f, "recv-reduce {into} from {from}"),
            Step::Copy { from, into } => write!(f, "copy {from} to {into}"),
            Step::Reduce { from, into } => write!(f, "reduce {from} to {into}"),
        }
    }
}

/// A text is no step.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is no step; a step is like `send in0 to 1`, `recv out0 from 1`, \
     `recv-reduce out0 from 1`, `copy in0 to out0` or `reduce in0 to out0`"
)]
pub struct UnknownStep {
    /// The text.
    pub text: String,
}

impl FromStr for StepText {
    type Err = UnknownStep;

    fn from_str(text: &str) -> Result<Self, UnknownStep> {
        parsed(text).map(Self).ok_or_else(|| UnknownStep { text: text.to_owned() })
    }
}

fn parsed(text: &str) -> Option<Step> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [verb, what, link, where_to] = words[..] else { return None };
    let first = span(what)?;
    let rank = || where_to.parse().ok();
    Some(match (verb, link) {
        ("send", "to") => Step::Send { from: first, to: rank()? },
        ("recv", "from") => Step::Recv { into: first, from: rank()? },
        ("recv-reduce", "from") => Step::RecvReduce { into: first, from: rank()? },
        ("copy", "to") => Step::Copy { from: first, into: span(where_to)? },
        ("reduce", "to") => Step::Reduce { from: first, into: span(where_to)? },
        _ => return None,
    })
}

fn span(text: &str) -> Option<Span> {
    let buffers = [("in", Buffer::Input), ("out", Buffer::Output), ("tmp", Buffer::Scratch)];
    let of = |(name, buffer): (&str, Buffer)| {
        // More scratch than this is a typing error.
        let chunk = text.strip_prefix(name)?.parse().ok().filter(|chunk| *chunk < 1 << 20)?;
        Some(Span { buffer, chunk })
    };
    buffers.into_iter().find_map(of)
}

impl Serialize for StepText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::schedule::{input, output, scratch};

    #[test]
    fn steps_are_read_back() {
        for step in [
            Step::Send { from: scratch(12), to: 3 },
            Step::Recv { into: output(0), from: 10 },
            Step::RecvReduce { into: output(2), from: 0 },
            Step::Copy { from: input(1), into: output(1) },
            Step::Reduce { from: input(1), into: scratch(1) },
        ] {
            assert_eq!(StepText(step).to_string().parse(), Ok(StepText(step)));
        }
        for wrong in
            ["", "send in0", "send in0 to", "sned in0 to 1", "send in to 1", "copy in0 to 1"]
        {
            let error = wrong.parse::<StepText>().unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("recv-reduce"), "{error}");
        }
    }
}
