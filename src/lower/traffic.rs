//! What one run of a program moves, counted without running it.

use super::program::{Op, Program};

/// Messages and payload bytes of one rank in one run of its program.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Publications on the board, whoever reads them.
    pub publications: u64,
    /// Their bytes, once for each publication.
    pub published: u64,
    /// Bytes that each local rank reads of them.
    pub to_locals: Vec<u64>,
    /// Messages to all streams.
    pub messages: u64,
    /// Bytes to each stream of the program.
    pub to_streams: Vec<u64>,
}

impl Program {
    /// What one run moves: a matter of the program alone.
    pub fn traffic(&self) -> Traffic {
        let (locals, streams) = (vec![0; self.totals.len()], vec![0; self.streams.len()]);
        let mut traffic = Traffic { to_locals: locals, to_streams: streams, ..Traffic::default() };
        self.ops.iter().for_each(|op| self.count(op, &mut traffic));
        traffic
    }

    /// All windows of one fold.
    fn count(&self, op: &Op, traffic: &mut Traffic) {
        let (windows, bytes) = (u64::from(self.windows), op.extent.bytes(self.windows));
        if op.audience != 0 {
            traffic.publications += windows;
            traffic.published += bytes;
            let readers =
                (0..traffic.to_locals.len()).filter(|local| op.audience >> local & 1 == 1);
            readers.for_each(|local| traffic.to_locals[local] += bytes);
        }
        if op.posted.is_some() {
            for stream in &self.posts[op.posts.0 as usize..op.posts.1 as usize] {
                traffic.messages += windows;
                traffic.to_streams[*stream as usize] += bytes;
            }
        }
    }
}
