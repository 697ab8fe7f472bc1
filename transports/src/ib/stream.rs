//! A stream over a reliable connection of verbs.
//!
//! Each end has a ring of bytes that its peer writes into. A sender copies head and body into a
//! ring of its own, as one piece, and has its adapter write the piece to the same place of the
//! peer's ring, with its length as immediate data. So a message of up to 64 KiB is one packet
//! train. The only other traffic is an occasional credit: the number of bytes that the receiver has
//! taken, whose places may be written again.
//!
//! Immediate data consumes one receive request of the peer. A sender never has more writes in
//! flight than its peer has posted requests, so the connection never retries a write for lack of
//! one.
//!
//! [`DirectWrites`](super::direct) go past the rings, between them in the order of the connection.

use super::abi::{
    IbvWc, WC_FLUSHED, WC_NO_ANSWER, WC_RECV_WITH_IMM, WC_SUCCESS, WRITE, WRITE_WITH_IMM,
};
use super::adapter::{VerbsAdapter, VerbsMemory};
use super::endpoint::VerbsEndpoint;
use super::error::VerbsFault;
use super::flow::{Inbound, Outbound, RING};
use super::flush::FlushPair;
use super::immediate::Immediate;
use super::queue_pair::{BATCH, QueuePair, RemoteWrite};
use crate::parts::{unfilled, unsent};
use crate::poll::{PollFd, interest};
use crate::stream::direct::DirectWrites;
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Polls in a row of an empty completion queue between two checks of the port, which take a system
/// call.
const LOOKS: u32 = 256;
/// How long an end that is dropped waits until its peer's adapter has received all sent bytes.
const LINGER: Duration = Duration::from_secs(5);
/// The same for an end whose communicator has failed: its peer may have died, and packets to it would be
/// repeated for seconds.
const SHORT_LINGER: Duration = Duration::from_millis(100);

/// One end of a connection, as a [`Stream`].
///
/// After [`prepare_to_sleep`](Stream::prepare_to_sleep) its descriptor is readable once anything has
/// happened: bytes or an end have arrived, or the ring has room again. It is never writable. A
/// sender detects that its peer's process has died; a receiver depends on its peer's host for that,
/// so the ranks of a job also watch one another.
///
/// Dropping it waits, for at most 5 s, until the peer's adapter has all that was sent. An end that was
/// [abandoned](Stream::abandon) waits for 0.1 s.
pub struct VerbsStream {
    pair: QueuePair,
    /// For registered memory that sees writes late.
    pub(super) flush: Option<FlushPair>,
    // After the pairs, which use them.
    rings: VerbsMemory,
    pub(super) registered: Option<Arc<VerbsMemory>>,
    peer: VerbsEndpoint,
    pub(super) out: Outbound,
    into: Inbound,
    pub(super) fault: Option<VerbsFault>,
    /// Polls of an empty completion queue since the last completion or check of the port.
    looks: u32,
    linger: Duration,
    pub(super) adapter: Arc<VerbsAdapter>,
}

opaque!(VerbsStream, "VerbsStream");

impl VerbsStream {
    /// A stream over `pair`, which is connected to the end at `peer`.
    pub(super) fn new(
        pair: QueuePair,
        rings: VerbsMemory,
        peer: VerbsEndpoint,
        adapter: Arc<VerbsAdapter>,
    ) -> Self {
        VerbsStream {
            pair,
            flush: None,
            rings,
            registered: None,
            peer,
            out: Outbound::default(),
            into: Inbound::default(),
            fault: None,
            looks: 0,
            linger: LINGER,
            adapter,
        }
    }

    /// The ring that the peer writes into.
    fn inbound_ring(&self) -> ViewMut<'_> {
        // SAFETY: the peer writes only to places for which it has credit, and this end reads only
        // those that have arrived and are not credited.
        unsafe { self.rings.segment().view() }.slice(0, RING)
    }

    /// The ring whose pieces are written to the peer's ring.
    fn outbound_ring(&self) -> ViewMut<'_> {
        // SAFETY: the adapter reads a piece until its write is complete. Its place is written again
        // only after that, and after the peer's credit.
        unsafe { self.rings.segment().view() }.slice(RING, RING)
    }

    /// Handles all completions that are here. Returns whether there were any.
    pub(super) fn pump(&mut self) -> bool {
        let mut completions = [IbvWc::default(); BATCH];
        let mut found = false;
        while self.fault.is_none() {
            match self.pair.completions.poll(&mut completions) {
                Ok(0) => {
                    self.look_at_port();
                    break;
                }
                Ok(count) => {
                    found = true;
                    self.looks = 0;
                    // Writes of the adapter before a completion are visible after it.
                    fence(Ordering::Acquire);
                    completions[..count].iter().for_each(|completion| self.complete(completion));
                }
                Err(error) => self.lose(&error),
            }
        }
        found
    }

    /// Checks, now and then, whether the port has gone down or the adapter has aborted a queue.
    /// Soft-RoCE repeats packets indefinitely then.
    fn look_at_port(&mut self) {
        self.looks += 1;
        if self.looks < LOOKS {
            return;
        }
        self.looks = 0;
        self.fault = self.adapter.watch.look(&self.adapter, self.pair.elements());
    }

    fn lose(&mut self, error: &io::Error) {
        self.fault.get_or_insert(VerbsFault::Call(error.raw_os_error().unwrap_or(libc::EIO)));
    }

    fn complete(&mut self, completion: &IbvWc) {
        match completion.status {
            WC_SUCCESS if completion.opcode == WC_RECV_WITH_IMM => {
                self.receive_number(Immediate::decode(u32::from_be(completion.imm_data)));
            }
            // Writes complete in the order in which they were posted.
            WC_SUCCESS => {
                self.out.posted -= 1;
                self.out.completed = completion.wr_id;
            }
            // Flushed requests have no reason of their own: an earlier failed request has it.
            WC_NO_ANSWER | WC_FLUSHED => self.lose_connection(VerbsFault::Unanswered),
            status => self.lose_connection(VerbsFault::Status(status)),
        }
    }

    /// The adapter has aborted the connection with `fault`. A failed queue or port is the reason to
    /// report: requests may fail before the event arrives or is read.
    fn lose_connection(&mut self, fault: VerbsFault) {
        if self.fault.is_some() {
            return;
        }
        let heard = self.adapter.watch.look(&self.adapter, self.pair.elements());
        let is_down = self.adapter.device.is_port_down(self.adapter.port.number);
        let down = is_down.then_some(VerbsFault::PortDown);
        self.fault = heard.or(down).or(Some(fault));
    }

    fn receive_number(&mut self, number: Immediate) {
        match number {
            Immediate::Data { bytes } => {
                self.into.arrived += u64::from(bytes);
                self.into.writes += 1;
            }
            Immediate::Credit { bytes, writes } => {
                if !self.out.take_credit(bytes, writes) {
                    self.fault = Some(VerbsFault::Protocol);
                }
            }
            Immediate::Finished => self.into.finished = true,
            Immediate::Gone => {
                self.into.finished = true;
                self.out.peer_gone = true;
            }
        }
        if self.into.arrived - self.into.credited > RING as u64 {
            self.fault = Some(VerbsFault::Protocol);
        }
        if let Err(error) = self.pair.post_receive() {
            self.lose(&error);
        }
    }

    /// Writes `len` bytes of the outbound ring at `at` to the same place of the peer's ring.
    fn write(&mut self, at: usize, len: usize, number: Immediate) {
        let write = RemoteWrite {
            id: self.out.sent + len as u64,
            from: self.rings.kind.address() + (RING + at) as u64,
            len: len as u32,
            may_inline: true,
            local_key: self.rings.local_key(),
            to: self.peer.ring + at as u64,
            remote_key: self.peer.key,
            immediate: Some(number.encode()),
        };
        // SAFETY: the range lies within the registered rings, and is not written again before the
        // write is complete.
        unsafe { self.post(&write) };
    }

    /// Posts a write. A failure is the fault of the stream.
    ///
    /// # Safety
    /// As of [`QueuePair::post`]; and the bytes do not change before the write is complete.
    pub(super) unsafe fn post(&mut self, write: &RemoteWrite) {
        let opcode = if write.immediate.is_some() { WRITE_WITH_IMM } else { WRITE };
        // SAFETY: the caller vouches for the bytes.
        match unsafe { self.pair.post(write, opcode) } {
            Ok(()) => {
                self.out.posted += 1;
                self.out.total += 1;
            }
            Err(error) => self.lose(&error),
        }
    }

    /// Bytes that may be sent as one piece now. If there are any, so may a direct write.
    pub(super) fn room(&mut self) -> Result<usize> {
        if self.out.finished || self.out.peer_gone {
            return Err(Fault::Closed);
        }
        self.check()?;
        if self.out.room() == 0 {
            self.pump();
            // Sends to an end that is gone fail, and its goodbye is the reason.
            if self.out.peer_gone {
                return Err(Fault::Closed);
            }
            self.check()?;
        }
        Ok(self.out.room())
    }

    /// Sends a credit to the peer, if one is worth a write.
    fn give_credit(&mut self) {
        if self.into.is_credit_due() && self.out.has_room_for_credit() {
            let number = self.into.take_credit();
            self.write(0, 0, number);
        }
    }

    /// The port of the connection.
    pub fn adapter(&self) -> &Arc<VerbsAdapter> {
        &self.adapter
    }

    /// True once the peer's adapter has everything that was sent.
    ///
    /// # Errors
    /// Why the connection is lost.
    pub fn is_delivered(&mut self) -> Result<bool> {
        self.pump();
        if self.out.posted == 0 {
            return Ok(true);
        }
        self.check().map(|()| false)
    }

    /// False once the peer's queue pair is gone or may be: it no longer acknowledges requests.
    fn expects_answers(&self) -> bool {
        self.fault.is_none() && !self.out.peer_gone
    }

    pub(super) fn check(&self) -> Result<()> {
        self.fault.map_or(Ok(()), |fault| Err(fault.report(&self.adapter)))
    }
}

impl Stream for VerbsStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        let parts = unsent(head, body, skip);
        let room = self.room()?;
        if room == 0 {
            return Ok(0);
        }
        let at = (self.out.sent % RING as u64) as usize;
        let mut len = 0;
        for part in parts {
            let bytes = part.len().min(room - len);
            self.outbound_ring().slice(at + len, bytes).copy_from(part.slice(0, bytes));
            len += bytes;
        }
        self.write(at, len, Immediate::Data { bytes: len as u32 });
        self.check()?;
        self.out.sent += len as u64;
        self.out.writes += 1;
        Ok(len)
    }

    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        let parts = unfilled(head, body, skip);
        if self.into.arrived == self.into.taken {
            self.pump();
        }
        let mut received = 0;
        for part in parts {
            let mut filled = 0;
            while filled < part.len() && self.into.taken < self.into.arrived {
                let at = (self.into.taken % RING as u64) as usize;
                let here = (self.into.arrived - self.into.taken) as usize;
                let bytes = here.min(RING - at).min(part.len() - filled);
                let from = self.inbound_ring().slice(at, bytes);
                part.slice(filled, bytes).copy_from(from.as_view());
                self.into.taken += bytes as u64;
                filled += bytes;
            }
            received += filled;
        }
        if received > 0 {
            if self.fault.is_none() {
                self.give_credit();
            }
            return Ok(received);
        }
        if self.into.finished {
            return Err(Fault::Closed);
        }
        self.check()?;
        self.give_credit();
        Ok(0)
    }

    fn prepare_to_sleep(&mut self) -> bool {
        // The caller gets the fault when it sends or receives. Until then nothing arrives.
        if self.fault.is_some() {
            return true;
        }
        if let Err(error) = self.pair.completions.arm() {
            self.lose(&error);
        }
        !self.pump() && self.fault.is_none()
    }

    /// Bytes that arrive and credits that make room are completions alike, and each makes the
    /// descriptor readable.
    fn interest(&self, reads: bool, writes: bool) -> Option<PollFd<'_>> {
        interest(self.pair.completions.descriptor(), reads || writes, false)
    }

    fn direct(&mut self) -> Option<&mut dyn DirectWrites> {
        Some(self)
    }

    fn abandon(&mut self) {
        self.linger = SHORT_LINGER;
    }

    fn finish(&mut self) {
        if self.out.finished || !self.adapter.device.owner.is_current() {
            return;
        }
        self.out.finished = true;
        if self.expects_answers() {
            self.write(0, 0, Immediate::Finished);
        }
    }
}

impl Drop for VerbsStream {
    fn drop(&mut self) {
        if !self.adapter.device.owner.is_current() {
            return;
        }
        self.out.finished = true;
        self.pump();
        if self.expects_answers() {
            self.write(0, 0, Immediate::Gone);
        }
        // Destroying the pair would drop what its adapter has not sent.
        let deadline = Instant::now() + self.linger;
        while self.out.posted > 0 && self.expects_answers() && Instant::now() < deadline {
            self.pump();
            std::thread::yield_now();
        }
    }
}
