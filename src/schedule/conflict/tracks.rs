//! The last uses by the steps of a rank: of spans, and of links to peers.

use crate::schedule::{Schedule, Span};

/// The last use of each span and link by the steps of one rank so far.
#[derive(Default)]
pub(super) struct Tracks {
    /// Greater than the number of every chunk that a step names.
    stride: usize,
    /// By span: the last node that wrote it, and the last of the nodes that must end before it is
    /// overwritten, as an entry of `readers`.
    pub(super) written: Vec<Option<u32>>,
    pub(super) read: Vec<Option<u32>>,
    /// Nodes that must end before a span is overwritten, each with the entry before it.
    readers: Vec<(u32, Option<u32>)>,
    /// By peer: the last node that sent there, or received from there.
    pub(super) sent: Vec<Option<u32>>,
    pub(super) received: Vec<Option<u32>>,
}

impl Tracks {
    /// Clears everything and begins the steps of `schedule`.
    pub(super) fn begin(&mut self, schedule: &Schedule, world: usize) {
        let spans = schedule.steps.iter().flat_map(|step| step.reads().chain(step.writes()));
        self.stride = spans.map(|span| span.chunk + 1).max().unwrap_or(0);
        self.readers.clear();
        for (list, len) in [
            (&mut self.written, 3 * self.stride),
            (&mut self.read, 3 * self.stride),
            (&mut self.sent, world),
            (&mut self.received, world),
        ] {
            list.clear();
            list.resize(len, None);
        }
    }

    pub(super) fn index(&self, span: Span) -> usize {
        span.buffer as usize * self.stride + span.chunk
    }

    /// Records that `node` must end before `span` is overwritten.
    pub(super) fn add_reader(&mut self, span: usize, node: u32) {
        let entry = self.readers.len() as u32;
        self.readers.push((node, self.read[span].replace(entry)));
    }

    /// The nodes that must end before `span` is overwritten, which removes them.
    pub(super) fn take_readers(&mut self, span: usize) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.read[span].take();
        std::iter::from_fn(move || {
            let (node, before) = self.readers[next? as usize];
            next = before;
            Some(node)
        })
    }
}
