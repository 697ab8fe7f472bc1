//! Messages and bytes of one run of a program, counted without running it.

use super::program::{Fold, Program};

/// Messages and payload bytes of one rank in one run of its program.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramTraffic {
    /// Publications on the board, each counted once.
    pub publications: u64,
    /// Their bytes, once for each publication.
    pub published: u64,
    /// Bytes that each local rank reads of them, or of this rank's own memory.
    pub to_locals: Vec<u64>,
    /// Messages to all streams.
    pub messages: u64,
    /// Bytes to each stream of the program.
    pub to_streams: Vec<u64>,
}

impl Program {
    /// The traffic of one run. It depends on the program alone.
    pub fn traffic(&self) -> ProgramTraffic {
        let locals = vec![0; self.totals.len()];
        let streams = vec![0; self.streams.len()];
        let mut traffic =
            ProgramTraffic { to_locals: locals, to_streams: streams, ..ProgramTraffic::default() };
        self.folds.iter().for_each(|fold| self.count(fold, &mut traffic));
        if let Some(access) = &self.registered {
            traffic.to_locals.iter_mut().zip(&access.lent).for_each(|(read, lent)| *read += lent);
        }
        traffic
    }

    /// All windows of one fold.
    fn count(&self, fold: &Fold, traffic: &mut ProgramTraffic) {
        let windows = u64::from(self.windows);
        let bytes = fold.extent.bytes(self.windows);
        if fold.audience != 0 {
            traffic.publications += windows;
            traffic.published += bytes;
            let readers =
                (0..traffic.to_locals.len()).filter(|local| fold.audience >> local & 1 == 1);
            readers.for_each(|local| traffic.to_locals[local] += bytes);
        }
        if fold.posted.is_some() {
            for stream in &self.posts[fold.posts.0 as usize..fold.posts.1 as usize] {
                traffic.messages += windows;
                traffic.to_streams[*stream as usize] += bytes;
            }
        }
    }
}
