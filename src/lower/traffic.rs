//! Messages and bytes of one run of a program, counted without running it.

use super::program::Program;

/// Messages and payload bytes of one rank in one run of its program.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramTraffic {
    /// Publications on the board, each counted once.
    pub publications: u64,
    /// Their bytes, once for each publication.
    pub published: u64,
    /// Bytes that local ranks read of them, or of this rank's own memory.
    pub read: u64,
    /// Messages to all streams.
    pub messages: u64,
    /// Their bytes.
    pub streamed: u64,
}

impl Program {
    /// The traffic of one run. It depends on the program alone.
    pub fn traffic(&self) -> ProgramTraffic {
        let windows = u64::from(self.windows);
        let lent = self.registered.as_ref().map_or(0, |access| access.lent);
        let mut traffic = ProgramTraffic { read: lent, ..ProgramTraffic::default() };
        for fold in &self.folds {
            let bytes = fold.extent.bytes(self.windows);
            if fold.audience != 0 {
                traffic.publications += windows;
                traffic.published += bytes;
                traffic.read += bytes * u64::from(fold.audience.count_ones());
            }
            let streams = if fold.posted.is_some() { fold.posts.1 - fold.posts.0 } else { 0 };
            traffic.messages += windows * u64::from(streams);
            traffic.streamed += bytes * u64::from(streams);
        }
        traffic
    }
}
