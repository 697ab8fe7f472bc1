//! The streams of one rank: what was posted and not yet sent, what is expected and not yet here.
//!
//! Streams keep no pointers, so what is posted is remembered here as a place in the call's buffers
//! and offered again until it has left. Whoever waits for anything moves bytes in both directions
//! on all links, so that no rank's progress depends on which peer it happens to wait for.

use super::Buffers;
use crate::lower::Program;
use crate::schedule::Buffer;
use maypole_kernels::{Region, View, ViewMut};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Head, Sleep, Stream};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// A stream of any kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(maypole_transports::tcp::Tcp),
    /// Between threads.
    Mem(maypole_transports::mem::Mem),
    /// Through shared memory.
    Pipe(maypole_transports::Pipe),
}

impl AnyStream {
    /// Bytes that were taken and of which it is not known whether they have arrived where they
    /// outlive this end.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.unsent(),
            Self::Mem(_) | Self::Pipe(_) => 0,
        }
    }
}

impl Stream for AnyStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        match self {
            Self::Tcp(stream) => stream.send(head, body, skip),
            Self::Mem(stream) => stream.send(head, body, skip),
            Self::Pipe(stream) => stream.send(head, body, skip),
        }
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        match self {
            Self::Tcp(stream) => stream.receive(head, body, skip),
            Self::Mem(stream) => stream.receive(head, body, skip),
            Self::Pipe(stream) => stream.receive(head, body, skip),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => stream.descriptor(),
            Self::Mem(stream) => stream.descriptor(),
            Self::Pipe(stream) => stream.descriptor(),
        }
    }

    fn finish(&mut self) {
        match self {
            Self::Tcp(stream) => stream.finish(),
            Self::Mem(stream) => stream.finish(),
            Self::Pipe(stream) => stream.finish(),
        }
    }
}

/// A part of one of the call's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) buffer: Buffer,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A message that is to come: how long it is, and where it goes if not to the inbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) into: Option<Place>,
    pub(super) len: usize,
}

#[derive(Debug)]
struct Link {
    stream: AnyStream,
    posted: VecDeque<(Place, [u8; HEAD])>,
    /// Bytes of the first post that have left.
    left: usize,
    /// Messages posted in all, and messages gone in this run.
    sent: u64,
    flushed: u64,
    /// Messages taken in all.
    taken: u64,
    expected: Option<Arrival>,
    head: [u8; HEAD],
    /// Bytes of the expected message that are here.
    here: usize,
    inbox: Region,
    fault: Option<Fault>,
}

impl Link {
    fn new(stream: AnyStream) -> Self {
        Self {
            stream,
            posted: VecDeque::new(),
            left: 0,
            sent: 0,
            flushed: 0,
            taken: 0,
            expected: None,
            head: [0; HEAD],
            here: 0,
            inbox: Region::new(0),
            fault: None,
        }
    }

    /// Sends as much as leaves now; true if anything did.
    fn push(&mut self, buffers: &Buffers<'_>) -> bool {
        let mut moved = false;
        while let Some((place, head)) = self.posted.front() {
            let body = buffers.read(place.buffer, (place.offset, place.len));
            match self.stream.send(head, body, self.left) {
                Ok(0) => return moved,
                Ok(sent) => self.left += sent,
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
            moved = true;
            if self.left == HEAD + place.len {
                self.posted.pop_front();
                self.left = 0;
                self.flushed += 1;
            }
        }
        moved
    }

    /// What to wake up for, if anything.
    fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let expects = self.expected.is_some_and(|expected| self.here < HEAD + expected.len);
        let interest = match (expects, !self.posted.is_empty()) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => return None,
        };
        Some((self.stream.descriptor()?, interest))
    }

    /// Takes as much of the expected message as is here now; true if anything was.
    fn pull(&mut self, buffers: &Buffers<'_>) -> bool {
        let mut moved = false;
        let Some(expected) = self.expected else { return moved };
        while self.here < HEAD + expected.len {
            let body = match expected.into {
                Some(place) => buffers.write(place.buffer, (place.offset, place.len)),
                None => self.inbox.view().slice(0, expected.len),
            };
            match self.stream.receive(&mut self.head, body, self.here) {
                Ok(0) => return moved,
                Ok(came) => self.here += came,
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
            moved = true;
        }
        moved
    }
}

/// All streams of one rank.
#[derive(Debug, Default)]
pub struct Links {
    /// By rank.
    links: Vec<Option<Link>>,
    /// The ranks that the running program's streams lead to.
    active: Vec<usize>,
    /// Something has moved since the last nap.
    moved: bool,
}

impl Links {
    /// Adds the stream to `rank`.
    pub fn insert(&mut self, rank: usize, stream: AnyStream) {
        if self.links.len() <= rank {
            self.links.resize_with(rank + 1, || None);
        }
        self.links[rank] = Some(Link::new(stream));
    }

    /// True if there is a stream to `rank`.
    pub fn contains(&self, rank: usize) -> bool {
        self.links.get(rank).is_some_and(Option::is_some)
    }

    /// Says on all streams that nothing more will be sent.
    pub fn finish(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.stream.finish());
    }

    pub(super) fn begin(&mut self, program: &Program) {
        self.active.clear();
        self.active.extend(program.streams.iter().map(|link| link.peer as usize));
        for rank in &self.active {
            let link = self
                .links
                .get_mut(*rank)
                .and_then(Option::as_mut)
                .expect("streams are made before programs run");
            link.flushed = 0;
            if link.inbox.len() < program.longest_staged {
                link.inbox = Region::new(program.longest_staged);
            }
        }
    }

    #[inline(always)]
    fn link(&mut self, stream: usize) -> &mut Link {
        self.links[self.active[stream]].as_mut().expect("checked at the beginning")
    }

    /// The rank at the other end.
    pub(super) fn peer(&self, stream: usize) -> usize {
        self.active[stream]
    }

    pub(super) fn post(&mut self, stream: usize, place: Place, fingerprint: u64) {
        let link = self.link(stream);
        let head = Head { position: link.sent, fingerprint };
        link.posted.push_back((place, head.to_bytes()));
        link.sent += 1;
    }

    pub(super) fn expect(&mut self, stream: usize, arrival: Arrival) {
        let link = self.link(stream);
        link.expected = Some(arrival);
        link.here = 0;
    }

    /// Once the expected message is here: whether it lies in its place rather than in the inbox. An
    /// error is the fingerprint of another one.
    pub(super) fn arrived(&mut self, stream: usize, fingerprint: u64) -> Result<Option<bool>, u64> {
        let link = self.link(stream);
        let expected = link.expected.expect("only what is expected is awaited");
        if link.here < HEAD {
            return Ok(None);
        }
        let head = Head::from_bytes(link.head);
        if head != (Head { position: link.taken, fingerprint }) {
            return Err(head.fingerprint);
        }
        Ok((link.here == HEAD + expected.len).then_some(expected.into.is_some()))
    }

    pub(super) fn lent(&self, stream: usize, len: usize) -> View<'_> {
        let link = self.links[self.active[stream]].as_ref().expect("checked at the beginning");
        link.inbox.view().slice(0, len).as_view()
    }

    /// The message is done with.
    pub(super) fn release(&mut self, stream: usize) {
        let link = self.link(stream);
        link.expected = None;
        link.taken += 1;
    }

    /// Messages gone in this run.
    pub(super) fn flushed(&mut self, stream: usize) -> u64 {
        self.link(stream).flushed
    }

    pub(super) fn is_flushed(&mut self, stream: usize) -> bool {
        self.link(stream).posted.is_empty()
    }

    pub(super) fn push(&mut self, buffers: &Buffers<'_>) {
        for at in 0..self.active.len() {
            self.moved |= self.link(at).push(buffers);
        }
    }

    /// Moves what can be moved now, both ways.
    pub(super) fn drive(&mut self, buffers: &Buffers<'_>) {
        for at in 0..self.active.len() {
            let link = self.link(at);
            let (pushed, pulled) = (link.push(buffers), link.pull(buffers));
            self.moved |= pushed | pulled;
        }
    }

    /// The first link that carries nothing any more, if one was found: whose, and why.
    pub(super) fn fault(&mut self) -> Option<(usize, Fault)> {
        let active = self.active.iter();
        active.copied().find_map(|rank| Some((rank, self.links[rank].as_mut()?.fault.take()?)))
    }

    /// Sleeps, and wakes up early if a stream can go on and no work is beside; not at all while
    /// bytes are on the move, because two ends that sleep in turn would move one buffer a nap.
    pub(super) fn sleep(&mut self, sleep: Sleep<'_>) {
        if !std::mem::take(&mut self.moved) {
            let links = self.active.iter().filter_map(|rank| self.links[*rank].as_ref());
            sleep.take(links.filter_map(Link::interest));
        }
    }
}
