//! The links of one rank, from their making to their shutdown.

use super::EAGER_LIMIT;
use super::context::{BatchContext, Connector};
use super::incoming::IncomingLink;
use super::outgoing::OutgoingLink;
use crate::execute::{AnyStream, Moved};
use maypole_transports::shm::SegmentOffer;
use maypole_transports::{Stream, mem, turns};
use std::time::{Duration, Instant};

/// The buffer size of a rank's stream to itself, in bytes.
const LOOPBACK_CAPACITY: usize = 64 << 10;
/// The longest wait of a leaving rank for the arrival of its sent bytes.
const LINGER: Duration = Duration::from_secs(5);

/// One rank's links for messages, each made at its first use.
#[derive(Debug, Default)]
pub(crate) struct MessageLinks {
    pub(super) rank: usize,
    pub(super) world: usize,
    /// By rank: the link on which this rank sends.
    pub(super) outgoing: Vec<Option<Box<OutgoingLink>>>,
    /// By rank: the link on which this rank receives.
    pub(super) incoming: Vec<Option<Box<IncomingLink>>>,
    /// The rank that a receive from any rank checks first, so that senders take turns.
    pub(super) first_source: usize,
    /// Bytes have moved since the last sleep, as those of programs: see
    /// [`PeerStreams`](crate::execute::PeerStreams).
    pub(super) moved: bool,
    /// True while links may hold indices of dropped messages: within a batch, and after a failure.
    /// Broken links can only be closed.
    pub(crate) is_broken: bool,
}

impl MessageLinks {
    /// The links of `rank`, in a group of `world` ranks. No link is made yet.
    pub(crate) fn new(rank: usize, world: usize) -> Self {
        Self { rank, world, ..Self::default() }
    }

    /// True if a message of `bytes` bytes to rank `to` would be sent eagerly.
    pub(crate) fn is_eager(&self, bytes: usize, to: usize) -> bool {
        match self.outgoing.get(to) {
            Some(Some(link)) => link.has_credit(bytes),
            _ => bytes <= EAGER_LIMIT,
        }
    }

    /// True if there is a link on which `peer` sends to this rank.
    pub(super) fn receives_from(&self, peer: usize) -> bool {
        matches!(self.incoming.get(peer), Some(Some(_)))
    }

    /// True if there is a link on which this rank sends to `peer`.
    #[inline]
    pub(super) fn sends_to(&self, peer: usize) -> bool {
        matches!(self.outgoing.get(peer), Some(Some(_)))
    }

    /// Makes the links to `peers`, each named once, to which there are none.
    ///
    /// # Errors
    /// A peer, and the reason why no link to it can be made, as a sentence.
    #[cold]
    pub(super) fn connect(
        &mut self,
        peers: &[usize],
        context: &BatchContext<'_>,
    ) -> Result<(), (usize, String)> {
        self.outgoing.resize_with(self.world, || None);
        let others: Vec<usize> = peers.iter().copied().filter(|peer| *peer != self.rank).collect();
        let deadline = context.waiting.end(turns::now());
        let mut dialled = context.connector.dial_all(&others, deadline).into_iter();
        for &peer in peers {
            let stream = if peer == self.rank {
                let (near, far) = mem::pair(LOOPBACK_CAPACITY);
                self.adopt(peer, AnyStream::Mem(far), context);
                AnyStream::Mem(near)
            } else {
                let dialled = dialled.next().expect("a result for each peer");
                dialled.map_err(|why| (peer, why))?
            };
            // Without an offer the link keeps its stream.
            let shares = self.can_share(peer, &stream, context);
            let offer = if shares { SegmentOffer::new().ok() } else { None };
            self.outgoing[peer] = Some(Box::new(OutgoingLink::new(stream, offer)));
        }
        Ok(())
    }

    /// Takes the streams that peers have made to this rank meanwhile.
    pub(super) fn accept_callers(&mut self, context: &BatchContext<'_>) {
        for (peer, stream) in context.connector.callers() {
            self.adopt(peer, stream, context);
        }
    }

    /// Receives from `peer` over `stream`.
    fn adopt(&mut self, peer: usize, stream: AnyStream, context: &BatchContext<'_>) {
        if self.incoming.is_empty() {
            self.incoming.resize_with(self.world, || None);
        }
        let shares = self.can_share(peer, &stream, context);
        // A peer that dials a second time has lost the reply to the first, and has sent nothing on
        // that stream.
        let slot = &mut self.incoming[peer];
        if slot.as_ref().is_none_or(|link| link.is_fresh()) {
            *slot = Some(Box::new(IncomingLink::new(peer, stream, shares)));
        }
    }

    /// True if `stream` leads to another process that can map this rank's memory.
    fn can_share(&self, peer: usize, stream: &AnyStream, context: &BatchContext<'_>) -> bool {
        let same_board = context.boards.of(peer) == context.boards.of(self.rank);
        same_board && stream.is_connection()
    }

    /// The traffic to each other rank.
    pub(crate) fn sent(&self) -> impl Iterator<Item = Moved> {
        let others = self.outgoing.iter().enumerate().filter(|(peer, _)| *peer != self.rank);
        others.filter_map(|(_, link)| Some(link.as_ref()?.carrier.sent))
    }

    /// Waits until sent bytes have arrived, unless the group has `failed`, and closes all links.
    pub(crate) fn leave(&mut self, failed: bool, connector: &dyn Connector) {
        // Closing these streams signals peers which still send to this rank that it receives
        // nothing.
        drop(connector.callers());
        self.outgoing.iter_mut().flatten().for_each(|link| link.carrier.finish());
        let deadline = Instant::now() + LINGER;
        while !failed && self.has_unsent() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if failed {
            self.outgoing.iter_mut().flatten().for_each(|link| link.carrier.stream.abandon());
            self.incoming.iter_mut().flatten().for_each(|link| link.carrier.stream.abandon());
        }
        self.outgoing.clear();
        self.incoming.clear();
    }

    /// True if closing the links now would lose bytes.
    fn has_unsent(&mut self) -> bool {
        self.outgoing.iter_mut().flatten().for_each(|link| link.carrier.discard_replies());
        let mut working =
            self.outgoing.iter().flatten().filter(|link| link.carrier.fault.is_none());
        working.any(|link| link.carrier.stream.unsent() > 0)
    }
}
