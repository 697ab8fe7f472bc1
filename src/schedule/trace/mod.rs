//! Traces: lanes of slices with arrows between them.
//!
//! The simulator makes traces of predictions and the recorder makes traces of runs. Both have one
//! form, so a prediction and a run can be compared side by side.
//!
//! Times are whole nanoseconds since a moment that is the same for all lanes of a trace. Within a
//! lane, slices follow one another or are nested. Activities that overlap in time are in different
//! lanes.
//!
//! [`document`] writes the trace-event format, which <https://ui.perfetto.dev> and
//! `chrome://tracing` open ("Trace Event Format", Duca and Sinclair 2016). The crate `maypole-pictures`
//! prints lanes for a terminal, and makes traces of simulations.

mod json;

pub use json::{HEAD, TAIL, document, events};

/// Lanes, the slices in them, and the arrows between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order in which they are shown.
    pub lanes: Vec<TraceLane>,
    /// In any order.
    pub slices: Vec<Slice>,
    /// In any order.
    pub ends: Vec<ArrowEnd>,
}

/// One row: a thread of a rank, or a part of it, that does one thing at a time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceLane {
    /// The number of its process. Lanes of one process are shown together.
    pub process: u64,
    /// The name of the process.
    pub process_name: String,
    /// A number that no other lane of the process has; lanes are shown in this order.
    pub thread: u64,
    /// The rank that the lane belongs to: `rank 3`.
    pub owner: String,
    /// The part of the rank that it shows, if the rank has several lanes: `sends`.
    pub part: String,
}

/// An activity with a beginning and an end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    /// The index of its lane in [`Trace::lanes`].
    pub lane: usize,
    /// The kind of activity.
    pub kind: SliceKind,
    /// Its name.
    pub name: String,
    /// Its beginning, in nanoseconds.
    pub start: u64,
    /// Its end in nanoseconds, not before its beginning.
    pub end: u64,
    /// The character that stands for it in text.
    pub mark: char,
    /// Further facts about it, by name.
    pub facts: Vec<(&'static str, Fact)>,
}

/// The kind of activity of a slice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SliceKind {
    /// A call of a collective, around all slices of the call.
    Call,
    /// Sending bytes.
    Send,
    /// Receiving bytes.
    Receive,
    /// Combining bytes, or moving them within a rank.
    Combine,
    /// Waiting for another rank.
    Wait,
}

impl SliceKind {
    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Combine => "combine",
            Self::Wait => "wait",
        }
    }
}

/// The value of a fact about a slice.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Fact {
    /// A number.
    Number(u64),
    /// Several numbers, as of ranks.
    Numbers(Vec<u64>),
    /// Text.
    Text(String),
}

/// One end of an arrow, in the slice that covers its time. The other end may be in another trace:
/// sender and receiver each record their own time, and the number of the message joins the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ArrowEnd {
    /// The number of the message: equal at both ends of the arrow, and at no other end.
    pub message: u64,
    /// The index of its lane in [`Trace::lanes`].
    pub lane: usize,
    /// Its time, in nanoseconds.
    pub at: u64,
    /// True at the arrow's head, false at its beginning.
    pub points_here: bool,
}

/// The character that stands for a rank in text.
pub fn digit(rank: usize) -> char {
    u32::try_from(rank).ok().and_then(|rank| char::from_digit(rank, 36)).unwrap_or('#')
}
