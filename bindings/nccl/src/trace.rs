//! A file with a line for each call: `MAYPOLE_NCCL_TRACE=FILE`.
//!
//! `README.md` describes the format. A line is appended when its call returns, by one write, so lines of
//! several threads do not interleave.

use crate::abi::ncclResult_t;
use crate::core;
use crate::group;
use crate::variables;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// The columns of a call, written when it returns.
#[derive(Debug)]
pub(crate) struct Line {
    function: &'static str,
    /// The depth of this thread's nested groups before the call.
    depth: u32,
    communicator: Option<u64>,
    count: Option<usize>,
    kind: Option<&'static str>,
    op: Option<Op>,
    /// The peer of a message, or the root of a collective.
    peer: Option<i32>,
    placement: Option<&'static str>,
    stream: Option<usize>,
    details: Option<String>,
}

/// The operation of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    BuiltIn(&'static str),
    /// A sum with a factor, by its number.
    PreMulSum(i32),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(name) => f.write_str(name),
            Self::PreMulSum(number) => write!(f, "premul:{number}"),
        }
    }
}

/// The trace file, if the variable is set.
static FILE: OnceLock<Option<File>> = OnceLock::new();

fn file() -> Option<&'static File> {
    let opened = FILE.get_or_init(|| {
        let name = std::env::var("MAYPOLE_NCCL_TRACE").ok().filter(|name| !name.is_empty())?;
        let name = variables::expanded(&name);
        let mut file = File::options().append(true).create(true).open(&name).ok()?;
        let names = Line::COLUMNS.join(" ");
        file.write_all(format!("# process {}: {names}\n", std::process::id()).as_bytes()).ok()?;
        Some(file)
    });
    opened.as_ref()
}

/// The number of this thread, in the order of first calls, from 0.
fn thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// The number of a stream. CUDA's three predefined streams keep their values; others are numbered from 3, in
/// the order of their first calls.
fn stream_number(stream: usize) -> usize {
    static STREAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    if stream < 3 {
        return stream;
    }
    let mut streams = STREAMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = streams.iter().position(|known| *known == stream);
    3 + found.unwrap_or_else(|| {
        streams.push(stream);
        streams.len() - 1
    })
}

/// An optional column, written as `-` if absent.
struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl Line {
    /// The names of the columns, in order.
    const COLUMNS: [&str; 13] = [
        "thread",
        "communicator",
        "function",
        "count",
        "type",
        "op",
        "peer",
        "placement",
        "stream",
        "capturing",
        "depth",
        "result",
        "details",
    ];

    pub(crate) fn new(function: &'static str) -> Self {
        Self {
            function: function.strip_prefix("nccl").unwrap_or(function),
            depth: group::depth(),
            communicator: None,
            count: None,
            kind: None,
            op: None,
            peer: None,
            placement: None,
            stream: None,
            details: None,
        }
    }

    pub(crate) fn communicator(&mut self, number: u64) {
        self.communicator = Some(number);
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.count = Some(count);
    }

    pub(crate) fn kind(&mut self, name: &'static str) {
        self.kind = Some(name);
    }

    pub(crate) fn op(&mut self, op: Op) {
        self.op = Some(op);
    }

    pub(crate) fn peer(&mut self, peer: i32) {
        self.peer = Some(peer);
    }

    pub(crate) fn placement(&mut self, name: &'static str) {
        self.placement = Some(name);
    }

    pub(crate) fn stream(&mut self, stream: usize) {
        self.stream = Some(stream);
    }

    /// Sets the details: `name=value` pairs, separated by commas.
    pub(crate) fn details(&mut self, details: impl FnOnce() -> String) {
        if file().is_some() {
            self.details = Some(details());
        }
    }

    /// Writes the line to the trace file, if there is one. Errors are ignored.
    pub(crate) fn write(&self, result: ncclResult_t) {
        if let Some(mut file) = file() {
            let _ = file.write_all(self.text(result).as_bytes());
        }
    }

    fn text(&self, result: ncclResult_t) -> String {
        let thread = thread();
        let capturing = self.stream.map(|stream| u8::from(core::is_capturing(stream)));
        format!(
            "{thread} {} {} {} {} {} {} {} {} {} {} {result} {}\n",
            Maybe(self.communicator),
            self.function,
            Maybe(self.count),
            Maybe(self.kind),
            Maybe(self.op),
            Maybe(self.peer),
            Maybe(self.placement),
            Maybe(self.stream.map(stream_number)),
            Maybe(capturing),
            self.depth,
            Maybe(self.details.as_deref()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_part_for_each_column() {
        let mut line = Line::new("ncclAllReduce");
        line.communicator(0);
        line.count(1024);
        line.kind("f32");
        line.op(Op::BuiltIn("sum"));
        line.placement("in-place");
        line.stream(0);
        let text = line.text(0);
        let parts: Vec<_> = text.trim_end().split(' ').collect();
        assert_eq!(parts.len(), Line::COLUMNS.len());
        let rest = ["AllReduce", "1024", "f32", "sum", "-", "in-place", "0", "0", "0", "0", "-"];
        assert_eq!(parts[2..], rest);
        let empty = Line::new("ncclGetVersion").text(4);
        assert!(empty.ends_with(" - GetVersion - - - - - - - 0 4 -\n"), "{empty}");
        assert_eq!(Op::PreMulSum(5).to_string(), "premul:5");
    }

    #[test]
    fn streams_are_numbered_in_the_order_of_their_calls() {
        let first = stream_number(0x7000);
        assert_eq!((stream_number(0), stream_number(2)), (0, 2));
        assert!(first >= 3);
        assert_eq!(stream_number(0x7000), first);
        assert_eq!(stream_number(0x8000), first + 1);
    }
}
