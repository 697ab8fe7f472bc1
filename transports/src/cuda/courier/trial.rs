//! A trial of direct writes to the memory of GPUs. A driver may export memory that an adapter writes elsewhere, or
//! nowhere: PCI's access control (ACS) or an IOMMU may redirect the writes. So before the first call each rank writes a
//! few bytes to each twin of its slots by each connection, and their reader compares them.

use super::places::{CopyRange, MailboxCopy};
use super::{CourierStream, DeviceBoard, LostLink};
use crate::cuda::copies;
use crate::cuda::launch::Lent;
use crate::cuda::layout::MailboxLayout;
use crate::stream::{Fault, HEAD, Stream};
use maypole_kernels::{View, ViewMut};
use std::io;
use std::time::{Duration, Instant};

/// Bytes of each room that a connection writes.
const BYTES: usize = 64;

const OTHERS: &str = "other bytes have arrived in the memory of this GPU";

/// The bytes of a room: in the writer's memory, and where they arrive in the reader's.
type Way = (CopyRange, usize);

/// The trial of a connection.
struct StreamTrial<'a> {
    stream: &'a mut CourierStream,
    /// What this rank writes, and its peer.
    outgoing: Vec<Way>,
    incoming: Vec<Way>,
    written: usize,
    last: u64,
    sent: usize,
    received: usize,
    has_landed: bool,
}

impl StreamTrial<'_> {
    /// Goes on as far as is possible now. True once both ends have the bytes of the other.
    fn advance(&mut self) -> Result<bool, Fault> {
        const DIRECT: &str = "each connection has direct writes";
        let CourierStream { stream, writes_to, .. } = &mut *self.stream;
        while let Some((range, at)) = self.outgoing.get(self.written) {
            let to = writes_to.expect(DIRECT).from(*at);
            let writer = stream.direct().expect(DIRECT);
            // SAFETY: the bytes stay as they are, and nobody reads the twin before the message behind them.
            let write = unsafe { writer.write((range.start, range.len), to) }?;
            let Some(write) = write else { break };
            (self.last, self.written) = (write, self.written + 1);
        }
        if self.written == self.outgoing.len() && self.sent < HEAD {
            self.sent += stream.send(&[0; HEAD], View::EMPTY, self.sent)?;
        }
        if self.received < HEAD {
            self.received += stream.receive(&mut [0; HEAD], ViewMut::EMPTY, self.received)?;
        }
        let writer = stream.direct().expect(DIRECT);
        if self.received == HEAD && !self.has_landed {
            self.has_landed = writer.flush(self.incoming[0].1)?;
        }
        Ok(self.sent == HEAD && self.has_landed && writer.is_complete(self.last)?)
    }
}

impl DeviceBoard {
    /// Lets each of `streams` of rank `me` write known bytes to each twin of its slots, while its peer does the same,
    /// and compares what has arrived as this rank's GPU sees it. No call uses the slots yet.
    ///
    /// # Errors
    /// [`LostLink`]: a connection fails, bytes are under way for longer than `limit`, or others have arrived than
    /// its peer has written.
    pub fn try_slots(
        &self,
        me: usize,
        streams: &mut [CourierStream],
        limit: Duration,
    ) -> Result<(), LostLink> {
        let copy = self.mailbox_copy(me);
        let lost = |peer, why: &dyn ToString| LostLink {
            peer,
            fault: Fault::Io(io::Error::other(why.to_string())),
        };
        let peers: Vec<_> = streams.iter().map(|stream| stream.peer).collect();
        let earlier = |at: usize| peers[..at].iter().filter(|peer| **peer == peers[at]).count();
        let trials = streams.iter_mut().enumerate().map(|(at, stream)| StreamTrial {
            outgoing: self.trial_ways(&copy, (me, stream.peer), earlier(at)),
            incoming: self.trial_ways(&copy, (stream.peer, me), earlier(at)),
            stream,
            written: 0,
            last: 0,
            sent: 0,
            received: 0,
            has_landed: false,
        });
        let mut trials: Vec<_> = trials.collect();
        for (range, _) in trials.iter().flat_map(|trial| &trial.outgoing) {
            copies::write(&self.aside, self.slot(range.start), &bytes(me, *range))
                .map_err(|error| lost(me, &error))?;
        }
        let until = Instant::now() + limit;
        loop {
            let mut late = None;
            for trial in &mut trials {
                let peer = trial.stream.peer;
                if !trial.advance().map_err(|fault| LostLink { peer, fault })? {
                    late = Some(peer);
                }
            }
            match late {
                None => break,
                Some(peer) if Instant::now() > until => {
                    return Err(lost(peer, &format!("bytes are under way for {limit:?}")));
                }
                Some(_) => std::thread::yield_now(),
            }
        }
        for StreamTrial { stream, incoming, .. } in &trials {
            for (range, at) in incoming {
                let found = copies::read(&self.aside, self.slot(*at));
                let found = found.map_err(|error| lost(me, &error))?;
                if found != bytes(stream.peer, *range) {
                    return Err(lost(stream.peer, &OTHERS));
                }
            }
        }
        Ok(())
    }

    /// The bytes of a trial in the memory of this GPU.
    fn slot(&self, at: usize) -> Lent<'_> {
        let buffer = &self.slots.as_ref().expect("slots are in the memory of GPUs").buffer;
        Lent::of_owner(buffer.address + at as u64, BYTES as u64)
    }

    /// The bytes that the `nth` connection of a rank to another one writes.
    fn trial_ways(&self, copy: &MailboxCopy, pair: (usize, usize), nth: usize) -> Vec<Way> {
        let layout = MailboxLayout::new(&self.shapes, copy.ranks());
        let rooms = copy.directions(&layout, &self.shapes, pair);
        let ways = rooms.iter().filter(|room| room.slots > 0).map(|room| {
            let CopyRange { start, len } = room.first_bytes((nth + 1) * BYTES);
            let start = start + len - BYTES;
            (CopyRange { start, len: BYTES }, room.at_reader(start))
        });
        ways.collect()
    }
}

/// The bytes of a trial at this place of a rank's memory.
fn bytes(rank: usize, range: CopyRange) -> Vec<u8> {
    let byte = |at: usize| ((rank << 40 | at) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (range.start..range.start + range.len).map(|at| byte(at) as u8).collect()
}
