//! What happened when: lanes of slices with arrows between them, as text and for a viewer.
//!
//! Two readers of schedules make traces: the simulator, of what would happen, and the recorder, of
//! what did. Both are shown alike, so that a prediction and a run can be laid side by side.
//!
//! Times are whole nanoseconds since a beginning that all lanes of a trace share. Within a lane,
//! slices either follow one another or lie within one another; what happens at the same time is in
//! lanes of its own.
//!
//! [`document`] writes the trace-event format, which <https://ui.perfetto.dev> and
//! `chrome://tracing` open ("Trace Event Format", Duca and Sinclair 2016). [`text`] prints lanes
//! for a terminal.

mod json;
mod lanes;

pub use json::{HEAD, TAIL, document, events};
pub use lanes::text;

/// Lanes, what is in them, and what leads from one to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order in which they are shown.
    pub lanes: Vec<TraceLane>,
    /// In any order.
    pub slices: Vec<Slice>,
    /// In any order.
    pub ends: Vec<ArrowEnd>,
}

/// One row: somebody who does one thing at a time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceLane {
    /// Lanes of one process are shown together: its number.
    pub process: u64,
    /// What the process is called.
    pub process_name: String,
    /// A number that no other lane of the process has; lanes are shown in this order.
    pub thread: u64,
    /// Whose lane it is: `rank 3`.
    pub owner: String,
    /// What of theirs it shows, if there is more than one: `sends`.
    pub part: String,
}

/// Something that took time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    /// A place in [`Trace::lanes`].
    pub lane: usize,
    /// What sort of thing.
    pub kind: SliceKind,
    /// What it is called.
    pub name: String,
    /// When it began.
    pub start: u64,
    /// When it ended; not before it began.
    pub end: u64,
    /// What stands for it in text.
    pub mark: char,
    /// What else is known of it.
    pub facts: Vec<(&'static str, Fact)>,
}

/// What sort of thing a slice is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SliceKind {
    /// A call of a collective, around all that it does.
    Call,
    /// Bytes leave.
    Send,
    /// Bytes come.
    Receive,
    /// Bytes are combined, or moved within a rank.
    Combine,
    /// Nothing can be done until somebody else has done something.
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

/// Something that is known of a slice.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Fact {
    /// A number.
    Number(u64),
    /// Several: ranks.
    Numbers(Vec<u64>),
    /// Words.
    Text(String),
}

/// One end of an arrow, in the slice that covers this time. The other end may be in another trace:
/// whoever sends knows when, and whoever receives knows when, and both know the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ArrowEnd {
    /// The message: equal at both ends, and at no others.
    pub message: u64,
    /// A place in [`Trace::lanes`].
    pub lane: usize,
    /// When.
    pub at: u64,
    /// Whether the arrow points here or comes from here.
    pub points_here: bool,
}

/// What stands for a rank in text: one character.
pub fn digit(rank: usize) -> char {
    u32::try_from(rank).ok().and_then(|rank| char::from_digit(rank, 36)).unwrap_or('#')
}
