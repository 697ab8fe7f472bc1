//! Boards whose mailboxes are in memory of the host, for GPUs that do not reach one another.
//!
//! One segment has the mailboxes of all ranks. Each rank maps it and registers it with the driver, so its
//! GPU reads and writes the same pages as all others. A rank that leaves takes only its own mapping away,
//! so no rank keeps memory for another one.

use super::Result;
use super::arena::{Offer, Reached};
use super::board::DeviceBoard;
use super::gpu_slots::PendingSlots;
use super::layout::{MailboxLayout, Shapes};
use super::left_boards;
use super::locals::{Locals, Places};
use super::memory::LentMemory;
use super::order::{WorkOrder, stream_aside};
use super::registered_segment::RegisteredSegment;
use super::started::GroupRank;
use super::use_table::UseTable;
use super::words::ReportWords;
use crate::shm::Segment;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// The mailboxes of each rank begin at a multiple of this: of any system's pages.
const GRANULE: usize = 64 << 10;

/// The slots of a rank in the memory of its GPU, the offers of all ranks, by which it reaches those of its host,
/// and the table by which it learns when these have left, as of [`PendingBoard`](super::PendingBoard::connect).
pub type SlotsOfGpus = (PendingSlots, Vec<Offer>, Option<UseTable>);

impl DeviceBoard {
    /// Bytes of the segment of a group of `ranks` ranks with mailboxes in memory of the host.
    pub fn bytes_in_host(shapes: &Shapes, ranks: usize) -> usize {
        ranks * MailboxLayout::new(shapes, ranks).bytes.next_multiple_of(GRANULE)
    }

    /// The board of `rank`, on the GPU of `stream`. The mailboxes of all ranks are in
    /// `segment`, which all of them share, and which is fresh. With `slots`, their slots are there instead.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if the driver does not register the
    /// segment, or has no memory.
    ///
    /// # Panics
    /// As [`PendingBoard::new`](super::PendingBoard::new), and if the segment is not
    /// [so long](Self::bytes_in_host).
    pub fn in_host(
        stream: &Arc<CudaStream>,
        shapes: &Shapes,
        rank: GroupRank,
        segment: Segment,
        slots: Option<SlotsOfGpus>,
    ) -> Result<Self> {
        let GroupRank { rank: me, ranks, .. } = rank;
        assert_eq!(segment.len(), Self::bytes_in_host(shapes, ranks), "it has all mailboxes");
        left_boards::end_left_boards();
        let layout = MailboxLayout::new(shapes, ranks);
        let stride = (segment.len() / ranks) as u64;
        let make = || {
            let (aside, order) = (stream_aside(stream)?, WorkOrder::new(stream, rank)?);
            let words = Arc::new(ReportWords::new(stream.context())?);
            let host = Arc::new(RegisteredSegment::new(stream.context(), segment)?);
            Ok((aside, order, words, host))
        };
        let (aside, order, words, host) = match make() {
            Ok(made) => made,
            Err(error) => {
                // Others may reach them already.
                std::mem::forget(slots);
                return Err(error);
            }
        };
        let of = |rank| Reached::InHost(Arc::clone(&host), stride * rank);
        let mut others: Vec<_> = (0..ranks as u64).map(of).collect();
        let mut memory = LentMemory::default();
        let mut table = None;
        let reached = slots.map(|(slots, offers, of_host)| {
            // As for mailboxes of GPUs: no signal may report that other processes have closed it.
            let is_freed = of_host.is_some() || slots.is_alone(me, &offers);
            let lent = LentMemory::new(Some(Arc::clone(&slots.memory)));
            // Another one is never dropped, so it stays.
            memory = if is_freed { lent } else { LentMemory::default() };
            table = of_host.map(Arc::new);
            slots.connect(stream.context(), (me, &offers), &mut others)
        });
        let made = reached.transpose().and_then(|mut slots| {
            let (stream, layout, words) = (&aside, &layout, &*words);
            let places = Places { stream, shapes, layout, words, slots: slots.as_ref() };
            let locals = Locals::new(&places, me, &others);
            let near = locals.is_err().then(|| slots.take()).flatten();
            others.extend(near.into_iter().flat_map(|slots| slots.near).flatten());
            Ok((locals?, slots))
        });
        match made {
            Ok((locals, slots)) => {
                let shapes = shapes.clone();
                Ok(Self { order, memory, table, aside, others, slots, words, shapes, locals })
            }
            Err(error) => {
                left_boards::leave((order, others), Box::new(words), memory, table);
                Err(error)
            }
        }
    }
}
