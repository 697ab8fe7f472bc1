//! Boards whose mailboxes are in memory of the host, for GPUs that do not reach one another.
//!
//! One segment has the mailboxes of all ranks. Each rank maps it and registers it with the driver, so its
//! GPU reads and writes the same pages as all others. A rank that leaves takes only its own mapping away,
//! so no rank keeps memory for another one.

use super::arena::Reached;
use super::board::DeviceBoard;
use super::error::Result;
use super::layout::{MailboxLayout, Shapes};
use super::left_boards::{self, Kept};
use super::locals::{Locals, Places};
use super::memory::LentMemory;
use super::order::{WorkOrder, stream_aside};
use super::registered_segment::RegisteredSegment;
use super::words::ReportWords;
use crate::shm::Segment;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// The mailboxes of each rank begin at a multiple of this: of any system's pages.
const GRANULE: usize = 64 << 10;

impl DeviceBoard {
    /// Bytes of the segment of a group of `ranks` ranks with mailboxes in memory of the host.
    pub fn bytes_in_host(shapes: &Shapes, ranks: usize) -> usize {
        ranks * MailboxLayout::new(shapes, ranks).bytes.next_multiple_of(GRANULE)
    }

    /// The board of rank `me` of `ranks`, on the GPU of `stream`. The mailboxes of all ranks are in
    /// `segment`, which all of them share, and which is fresh.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver does not register the
    /// segment, or has no memory.
    ///
    /// # Panics
    /// As [`PendingBoard::new`](super::PendingBoard::new), and if the segment is not
    /// [so long](Self::bytes_in_host).
    pub fn in_host(
        stream: &Arc<CudaStream>,
        shapes: &Shapes,
        (me, ranks): (usize, usize),
        segment: Segment,
    ) -> Result<Self> {
        assert_eq!(segment.len(), Self::bytes_in_host(shapes, ranks), "it has all mailboxes");
        left_boards::end_left_boards();
        let layout = MailboxLayout::new(shapes, ranks);
        let stride = (segment.len() / ranks) as u64;
        let (aside, order) = (stream_aside(stream)?, WorkOrder::new(stream)?);
        let words = Arc::new(ReportWords::new(stream.context())?);
        let memory = Arc::new(RegisteredSegment::new(stream.context(), segment)?);
        let of = |rank| Reached::InHost(Arc::clone(&memory), stride * rank);
        let others: Vec<_> = (0..ranks as u64).map(of).collect();
        let places = Places { stream: &aside, shapes, layout: &layout, words: &words };
        let (shapes, table) = (shapes.clone(), None);
        match Locals::new(&places, me, &others, false) {
            Ok(locals) => {
                let memory = LentMemory::default();
                Ok(Self { order, memory, table, aside, others, words, shapes, locals })
            }
            Err(error) => {
                let used = (Box::new(words) as Kept, Box::new(()) as Kept);
                left_boards::leave((order, others), used, LentMemory::default(), table);
                Err(error)
            }
        }
    }
}
