//! How a rank's mailboxes are made, and reach those of the others.

use super::arena::{MailboxMemory, Offer, ProcessName, Reached};
use super::board::DeviceBoard;
use super::error::{DeviceError, Result};
use super::layout::{MailboxLayout, Shapes};
use super::lent_memory::{LentMemory, free_what_was_left};
use super::locals::{Locals, Places};
use super::order::WorkOrder;
use super::words::ReportWords;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// A board that the other ranks do not reach yet.
#[derive(Debug)]
pub struct PendingBoard {
    stream: Arc<CudaStream>,
    order: WorkOrder,
    lent: LentMemory,
    offer: Offer,
    words: Arc<ReportWords>,
    shapes: Shapes,
    layout: MailboxLayout,
    ranks: usize,
}

impl PendingBoard {
    /// Allocates the mailboxes of one of `ranks` ranks on the GPU of `stream`.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if there is no memory for them.
    ///
    /// # Panics
    /// If a shape has more than [`MOST_SLOTS`](maypole_kernels::packed::MOST_SLOTS) slots, or a number
    /// that is no power of two.
    pub fn new(stream: &Arc<CudaStream>, shapes: &Shapes, ranks: usize) -> Result<Self> {
        let layout = MailboxLayout::new(shapes, ranks);
        free_what_was_left();
        let MailboxMemory { memory, offer } = MailboxMemory::new(stream, layout.bytes)?;
        let lent = LentMemory::new(memory);
        let words = Arc::new(ReportWords::new(stream.context())?);
        let order = WorkOrder::new(stream)?;
        let (stream, shapes) = (Arc::clone(stream), shapes.clone());
        Ok(Self { stream, order, lent, offer, words, shapes, layout, ranks })
    }

    /// How the other ranks reach it.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Connects rank `me` with the ranks that made `offers`, by rank.
    ///
    /// # Errors
    /// [`DeviceError::Unreachable`] if this GPU does not reach the memory of some rank, and the memory
    /// of this rank, which others may have opened.
    ///
    /// # Panics
    /// If there is not one offer a rank.
    pub fn connect(
        self,
        me: usize,
        offers: &[Offer],
    ) -> Result<DeviceBoard, (DeviceError, LentMemory)> {
        match self.reach(me, offers) {
            Err(error) => Err((error, self.lent)),
            Ok((others, locals)) => {
                let here = ProcessName::current();
                Ok(DeviceBoard {
                    order: self.order,
                    lent: self.lent,
                    words: self.words,
                    shapes: self.shapes,
                    locals,
                    has_processes: offers.iter().any(|offer| offer.process != here),
                    others,
                })
            }
        }
    }

    fn reach(&self, me: usize, offers: &[Offer]) -> Result<(Vec<Reached>, Locals)> {
        assert_eq!(offers.len(), self.ranks, "one offer a rank");
        let reach = |(rank, offer): (usize, &Offer)| {
            let enough = offer.bytes >= self.offer.bytes;
            assert!(enough, "all ranks have mailboxes of the same shapes");
            Reached::new(self.stream.context(), rank, offer)
        };
        let others: Vec<Reached> =
            offers.iter().enumerate().map(reach).collect::<Result<_, _>>()?;
        let mine = &offers[me];
        let alike = |offer: &Offer| (offer.process, offer.uuid) == (mine.process, mine.uuid);
        let (stream, shapes) = (&self.stream, &self.shapes);
        let places = Places { stream, shapes, layout: &self.layout, words: &self.words };
        let locals = Locals::new(&places, me, &others, offers.iter().all(alike))?;
        Ok((others, locals))
    }
}
