//! One direction of a link: bytes on their way.

use super::fault::{below, once_in};
use maypole_kernels::ViewMut;
use maypole_transports::Fault;
use rand_xoshiro::SplitMix64;
use std::collections::VecDeque;

#[derive(Debug)]
struct Arrival {
    arrival: u64,
    bytes: Vec<u8>,
    /// How many of them were received.
    taken: usize,
}

/// One direction of a link. Times are microseconds of the network's clock.
#[derive(Debug)]
pub(super) struct LinkDirection {
    pub(super) from: usize,
    pub(super) to: usize,
    segments: VecDeque<Arrival>,
    /// Bytes that were sent and not received.
    pub(super) held: usize,
    /// When the last byte so far arrives.
    last_arrival: u64,
    /// When the receiver gets the end.
    end: Option<u64>,
    /// When the sender gets the refusal of more bytes.
    refusal: Option<u64>,
    /// Ends that still exist.
    pub(super) ends: u8,
}

impl LinkDirection {
    pub(super) fn new(from: usize, to: usize) -> Self {
        Self {
            from,
            to,
            segments: VecDeque::new(),
            held: 0,
            last_arrival: 0,
            end: None,
            refusal: None,
            ends: 2,
        }
    }

    /// How many of `offered` bytes it takes.
    ///
    /// # Errors
    /// [`Fault::Closed`] if either end has ended it.
    pub(super) fn room(&self, offered: usize, capacity: usize, now: u64) -> Result<usize, Fault> {
        if self.end.is_some() || self.refusal.is_some_and(|noticed| noticed <= now) {
            return Err(Fault::Closed);
        }
        Ok(offered.min(capacity - self.held))
    }

    /// Takes `bytes`, which arrive after the latency `delay`, and not before earlier bytes. Returns
    /// when they arrive.
    pub(super) fn put(&mut self, bytes: Vec<u8>, now: u64, delay: u64) -> u64 {
        // The receiver is gone, and the sender's refusal has not arrived.
        if self.refusal.is_some() {
            return now;
        }
        self.last_arrival = self.last_arrival.max(now + delay);
        self.held += bytes.len();
        self.segments.push_back(Arrival { arrival: self.last_arrival, bytes, taken: 0 });
        self.last_arrival
    }

    /// Bytes that can be received now.
    ///
    /// # Errors
    /// [`Fault::Closed`] if the direction has ended, and all bytes before were received.
    pub(super) fn arrived(&self, now: u64) -> Result<usize, Fault> {
        if self.refusal.is_some() {
            return Err(Fault::Closed);
        }
        let arrived = self.segments.iter().take_while(|segment| segment.arrival <= now);
        let bytes = arrived.map(|segment| segment.bytes.len() - segment.taken).sum();
        if bytes == 0 && self.segments.is_empty() && self.end.is_some_and(|end| end <= now) {
            return Err(Fault::Closed);
        }
        Ok(bytes)
    }

    /// Moves the next `count` bytes to `parts`, in order.
    pub(super) fn take(&mut self, parts: [ViewMut<'_>; 2], count: usize) {
        let mut left = count;
        for part in parts {
            let mut filled = 0;
            while left > 0 && filled < part.len() {
                let segment = self.segments.front_mut().expect("the bytes have arrived");
                let rest = &segment.bytes[segment.taken..];
                let len = rest.len().min(part.len() - filled).min(left);
                part.slice(filled, len).fill_from(&rest[..len]);
                segment.taken += len;
                if segment.taken == segment.bytes.len() {
                    self.segments.pop_front();
                }
                filled += len;
                left -= len;
            }
        }
        self.held -= count;
    }

    /// The sender ends the direction. Returns when the receiver gets the end: after all bytes.
    pub(super) fn finish(&mut self, now: u64, delay: u64) -> u64 {
        let noticed = self.last_arrival.max(now + delay);
        *self.end.get_or_insert(noticed)
    }

    /// The receiver ends the direction. The sender gets the refusal after the latency `delay`.
    pub(super) fn abandon(&mut self, now: u64, delay: u64) {
        self.refusal.get_or_insert(now + delay);
        self.segments.clear();
        self.held = 0;
    }

    /// The sender dies: bytes that have not arrived are cut off somewhere. Returns when the receiver
    /// gets the end.
    pub(super) fn cut(&mut self, now: u64, delay: u64, random: &mut SplitMix64) -> u64 {
        let arrived = self.segments.iter().take_while(|segment| segment.arrival <= now).count();
        let kept = arrived + below(random, (self.segments.len() - arrived) as u64 + 1) as usize;
        self.segments.truncate(kept);
        if kept > arrived && once_in(random, 2) {
            let last = self.segments.back_mut().expect("some were kept");
            let whole = last.bytes.len() as u64;
            last.bytes.truncate(1 + below(random, whole) as usize);
        }
        let left = |segment: &Arrival| segment.bytes.len() - segment.taken;
        self.held = self.segments.iter().map(left).sum();
        self.finish(now, delay)
    }
}
