//! How a rank's mailboxes are made, and reach those of the others.

use super::Result;
use super::arena::{Offer, ProcessName, Reached, mailbox_memory};
use super::board::DeviceBoard;
use super::layout::{MailboxLayout, Shapes};
use super::left_boards::{self, end_left_boards};
use super::locals::{Locals, Places};
use super::memory::LentMemory;
use super::order::{WorkOrder, stream_aside};
use super::started::GroupRank;
use super::use_table::UseTable;
use super::words::ReportWords;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// A board that the other ranks do not reach yet.
#[derive(Debug)]
pub struct PendingBoard {
    /// A stream on which nothing waits for a kernel.
    aside: Arc<CudaStream>,
    order: WorkOrder,
    memory: LentMemory,
    offer: Offer,
    words: Arc<ReportWords>,
    shapes: Shapes,
    layout: MailboxLayout,
    rank: GroupRank,
}

impl PendingBoard {
    /// Allocates the mailboxes of `rank` on the GPU of `stream`.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if there is no memory for them.
    ///
    /// # Panics
    /// If a shape has more than [`MOST_SLOTS`](maypole_kernels::packed::MOST_SLOTS) slots, or a number
    /// that is no power of two.
    pub fn new(stream: &Arc<CudaStream>, shapes: &Shapes, rank: GroupRank) -> Result<Self> {
        let layout = MailboxLayout::new(shapes, rank.ranks);
        end_left_boards();
        // The rank's own stream may have calls of other groups, which wait for other ranks.
        let aside = stream_aside(stream)?;
        let (memory, offer) = mailbox_memory(&aside, layout.bytes)?;
        let memory = LentMemory::new(Some(memory));
        let words = Arc::new(ReportWords::new(stream.context())?);
        let order = WorkOrder::new(stream, rank)?;
        let shapes = shapes.clone();
        Ok(Self { aside, order, memory, offer, words, shapes, layout, rank })
    }

    /// How the other ranks reach it.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Connects the rank with those that made `offers`, by rank. If some are other processes, `table`
    /// records which ranks use the memory of others; without it the memory is kept until the
    /// process ends.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if this GPU does not reach the memory of some rank. Then this
    /// rank has left the board.
    ///
    /// # Panics
    /// If there is not one offer a rank.
    pub fn connect(self, offers: &[Offer], table: Option<UseTable>) -> Result<DeviceBoard> {
        let mut others = Vec::with_capacity(offers.len());
        let locals = self.reach(offers, &mut others);
        let Self { aside, order, memory, words, shapes, .. } = self;
        let is_alone = offers.iter().all(|offer| offer.process == ProcessName::current());
        let table = table.map(Arc::new);
        // No signal may report that the other processes have closed it.
        let is_freed = table.is_some() || is_alone;
        let memory = if is_freed { memory } else { LentMemory::default() };
        let slots = None;
        let locals = match locals {
            Ok(locals) => locals,
            Err(error) => {
                left_boards::leave((order, others), Box::new(words), memory, table);
                return Err(error);
            }
        };
        Ok(DeviceBoard { order, memory, table, aside, others, slots, words, shapes, locals })
    }

    fn reach(&self, offers: &[Offer], others: &mut Vec<Reached>) -> Result<Locals> {
        let GroupRank { rank: me, ranks, .. } = self.rank;
        assert_eq!(offers.len(), ranks, "one offer a rank");
        for (rank, offer) in offers.iter().enumerate() {
            let enough = offer.bytes >= self.offer.bytes;
            assert!(enough, "all ranks have mailboxes of the same shapes");
            others.push(Reached::new(self.aside.context(), rank, offer)?);
        }
        let (stream, shapes) = (&self.aside, &self.shapes);
        let places =
            Places { stream, shapes, layout: &self.layout, words: &self.words, slots: None };
        Locals::new(&places, me, others)
    }
}
