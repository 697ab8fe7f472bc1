//! Couriers: mailboxes of ranks on several hosts.
//!
//! # The problem
//! A kernel publishes by a write to a mailbox, and waits for a write of another rank. No write of a GPU
//! reaches another host.
//!
//! # The idea
//! Each host has a copy of the mailboxes of all ranks of the group, in memory that its GPUs reach. A rank
//! writes to the copy of its host, wherever the reader is. For each rank on another host, the courier
//! of the writer watches the words that are meant for that rank. When one changes, the courier sends it
//! over the stream to the reader's courier, which writes it to the copy of its own host:
//!
//! | word | carried with it | sent when |
//! |---|---|---|
//! | `arrived` | the lane's part of the publication | the publication is complete |
//! | `consumed` | nothing | the reader has read several publications, or nothing moves |
//! | `announced` | nothing | a call begins |
//!
//! A courier needs no knowledge of calls, programs or graphs, and makes no call of the driver.
//!
//! # Why no byte is overwritten early
//! A slot is written again when all of its readers have consumed it. The writer receives the `consumed` of a
//! reader on another host after that reader has received the slot, so the slot stays while it is sent.
//! The copy of a slot is written after the writer has read the `consumed` of all readers of the last
//! publication there, which they wrote after they had read the copy. Readers of one host share a copy.
//! Each of their couriers receives the same bytes, and writes over equal ones.
//!
//! # Direct writes
//! Over RDMA the copies of two hosts may be registered with their adapters. Then these write the bytes of longer
//! publications [directly](crate::stream::direct) from slot to slot, and the stream carries the word behind
//! them. A slot is the adapter's until its write is complete, so a `consumed` that arrives before that is held
//! back.
//!
//! # Slots in the memory of GPUs
//! If adapters reach that memory, slots are there, and direct writes are the only way of bytes, also of few:
//! no processor reads them. Each reader has a twin of its writers' slots of its own. Some GPUs see the bytes of a write
//! later than the host sees the word behind them, so the receiver [flushes](crate::stream::direct::DirectWrites::flush)
//! before it writes `arrived`.
//!
//! # Rails
//! A courier may have several streams to a rank, by several ports. Lanes take them in turn, each with all of its
//! words, so the order within a lane is that of one stream. A rank says goodbye on each.
//!
//! # Order
//! The receiver writes the bytes first and then, with release ordering, `arrived`. A rank says goodbye behind its
//! last word, so its peers know that all of its words have arrived.

mod incoming;
mod link;
mod message;
mod places;
#[cfg(test)]
mod tests;

use super::arena::Reached;
use super::board::DeviceBoard;
use super::layout::{MailboxLayout, Shapes};
use crate::any_stream::AnyStream;
use crate::poll::poll;
use crate::shm::Segment;
use crate::stream::direct::{DirectWrites, RemoteMemory};
use crate::stream::{Fault, Stream};
use link::CourierLink;
use places::MailboxCopy;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Carries a rank's words to ranks on other hosts, and theirs to this one. All methods return
/// immediately, but [`sleep`](Self::sleep).
#[derive(Debug)]
pub struct Courier {
    copy: MailboxCopy,
    links: Vec<CourierLink>,
}

/// A courier has lost the stream to a rank.
#[derive(Debug)]
pub struct LostLink {
    /// The rank at the other end.
    pub peer: usize,
    /// Why.
    pub fault: Fault,
}

/// A stream of a courier.
#[derive(Debug)]
pub struct CourierStream {
    /// The rank at the other end.
    pub peer: usize,
    /// The stream.
    pub stream: AnyStream,
    /// The copy of the mailboxes on the peer's host, or the slots in the memory of its GPU, for direct writes. The
    /// stream has them then, and the same of this rank was [registered](DeviceBoard::register) for it.
    pub writes_to: Option<RemoteMemory>,
}

impl DeviceBoard {
    /// Registers the mailboxes of the host of rank `me`, or its slots in the memory of its GPU, for direct writes to
    /// and from ranks on other hosts. The couriers of these have to have them at the same places, as all of the group do.
    ///
    /// # Errors
    /// As [`DirectWrites::register`].
    ///
    /// # Panics
    /// If they are not in memory of this host.
    pub fn register(&self, me: usize, writer: &mut dyn DirectWrites) -> io::Result<RemoteMemory> {
        match &self.slots {
            Some(slots) => writer.register_device(&slots.buffer),
            None => writer.register(&self.copy(me)),
        }
    }

    /// The courier of rank `me` over `streams`, to all ranks on other hosts. The mailboxes of the board are
    /// [in memory of this host](Self::in_host), and hold the words of all ranks. Of several streams to a rank, in an
    /// order that both ranks have, each carries some lanes.
    ///
    /// # Panics
    /// If they are elsewhere, or if slots are in the memory of GPUs and some stream has no direct writes.
    pub fn courier(&self, me: usize, streams: Vec<CourierStream>) -> Courier {
        let is_direct = |stream: &CourierStream| stream.writes_to.is_some();
        assert!(self.slots.is_none() || streams.iter().all(is_direct), "adapters reach the slots");
        let slots = self.slots.as_ref().map(|slots| slots.layout.clone());
        let copy = MailboxCopy::new(self.copy(me), self.others.len(), slots);
        Courier::new(copy, &self.shapes, me, streams)
    }

    /// True if slots are in the memory of GPUs, and all else in memory of the hosts.
    pub fn has_slots_on_gpus(&self) -> bool {
        self.slots.is_some()
    }

    fn copy(&self, me: usize) -> Arc<Segment> {
        let Reached::InHost(memory, _) = &self.others[me] else {
            panic!("the mailboxes of ranks on several hosts are in memory of each host");
        };
        Arc::clone(&memory.segment)
    }
}

impl Courier {
    /// That of rank `me`, whose host has this copy of the mailboxes.
    fn new(copy: MailboxCopy, shapes: &Shapes, me: usize, streams: Vec<CourierStream>) -> Self {
        let layout = MailboxLayout::new(shapes, copy.ranks);
        let peers: Vec<_> = streams.iter().map(|stream| stream.peer).collect();
        let rails = |peer, of: &[usize]| of.iter().filter(|other| **other == peer).count();
        let link = |(at, stream): (usize, CourierStream)| {
            let peer = stream.peer;
            let rail = (rails(peer, &peers[..at]), rails(peer, &peers));
            let directions =
                [(me, peer), (peer, me)].map(|pair| copy.directions(&layout, shapes, pair));
            CourierLink::new(stream, rail, directions)
        };
        let links = streams.into_iter().enumerate().map(link).collect();
        Self { copy, links }
    }

    /// Sends and receives as much as is possible now. Returns true if something has moved.
    ///
    /// # Errors
    /// [`LostLink`] if a stream has ended before its rank has said goodbye. The courier may not be used
    /// after that.
    pub fn drive(&mut self) -> Result<bool, LostLink> {
        let mut has_moved = false;
        for link in &mut self.links {
            let peer = link.peer;
            has_moved |= link.drive(&self.copy).map_err(|fault| LostLink { peer, fault })?;
        }
        Ok(has_moved)
    }

    /// Says goodbye to all ranks, behind the last word. The kernels of this rank have ended.
    pub fn say_goodbye(&mut self) {
        self.links.iter_mut().for_each(CourierLink::say_goodbye);
    }

    /// True once all goodbyes have arrived at the hosts of their ranks.
    pub fn has_ended(&self) -> bool {
        self.links.iter().all(CourierLink::has_ended)
    }

    /// The ranks whose goodbye has arrived, by bits from the lowest on. All of their words have arrived.
    pub fn left(&self) -> u64 {
        let here = self.links.iter().filter(|link| !link.has_left);
        here.fold(self.peers(), |bits, link| bits & !(1 << link.peer))
    }

    /// The ranks on other hosts, by bits from the lowest on.
    pub fn peers(&self) -> u64 {
        self.links.iter().fold(0, |bits, link| bits | 1 << link.peer)
    }

    /// Sleeps until a stream can progress, but no longer than `limit`: kernels wake no courier.
    pub fn sleep(&mut self, limit: Duration) {
        if !self.links.iter_mut().all(CourierLink::prepare_to_sleep) {
            return;
        }
        let mut interests: Vec<_> = self.links.iter().filter_map(CourierLink::interest).collect();
        // The system may lack memory for the call, and the next round tries all streams in any case.
        let _ = poll(&mut interests, limit);
    }

    /// Makes the end of the streams not flush: the group has failed.
    pub fn abandon(&mut self) {
        self.links.iter_mut().for_each(|link| link.stream.abandon());
    }
}
