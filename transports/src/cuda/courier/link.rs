//! The link of a courier to one rank.

use super::CourierStream;
use super::incoming::{IncomingWord, WordArrival};
use super::message::{WordHead, WordKind};
use super::places::{CopyRange, Direction, MailboxCopy};
use crate::any_stream::AnyStream;
use crate::poll::PollFd;
use crate::stream::direct::RemoteMemory;
use crate::stream::{HEAD, Result, Stream};
use std::sync::atomic::Ordering;

/// Shorter publications travel in the stream: an adapter takes these bytes and their head as one request,
/// without a look at memory.
const LEAST_DIRECT: usize = 112;

/// Bits of `arrived` below the number of its publication: `MARK_LOG` of the kernels.
const MARK_BITS: u32 = 16;

/// A word that this rank writes for the peer.
#[derive(Debug)]
struct WatchedWord {
    head: WordHead,
    at: usize,
    /// Its last value that was sent.
    sent: u64,
    /// The direct write of its last bytes, 0 if there was none.
    write: u64,
}

/// A message that has not left completely.
#[derive(Debug)]
struct OutgoingWord {
    head: WordHead,
    body: CopyRange,
    sent: usize,
    /// The place of its word among those that are watched.
    word: usize,
}

/// This rank's goodbye.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Goodbye {
    None,
    Wanted,
    /// It has left this process, or the peer needs none.
    Said,
}

#[derive(Debug)]
pub(super) struct CourierLink {
    pub(super) peer: usize,
    pub(super) stream: AnyStream,
    outgoing: Vec<Direction>,
    incoming: Vec<Direction>,
    /// Those of credits come last.
    watched: Vec<WatchedWord>,
    /// The word, of no credit, that is looked at next.
    next: usize,
    /// The peer's copy of the mailboxes, if it and that of this host are registered for direct writes.
    writes_to: Option<RemoteMemory>,
    sending: Option<OutgoingWord>,
    receiving: IncomingWord,
    /// Words whose bytes the GPU may not see yet, in the order in which they have arrived.
    landing: Vec<WordArrival>,
    is_flushing: bool,
    goodbye: Goodbye,
    /// The peer has said goodbye.
    pub(super) has_left: bool,
    /// Rounds in a row in which nothing has moved.
    quiet: u32,
}

/// A credit costs as much as a short publication. So those of half of a room's slots leave together, or all of
/// them after so many quiet rounds, about 8 us.
const QUIET: u32 = 16;

impl CourierLink {
    pub(super) fn new(
        CourierStream { peer, stream, writes_to }: CourierStream,
        (rail, rails): (usize, usize),
        [outgoing, incoming]: [Vec<Direction>; 2],
    ) -> Self {
        let numbered = (0..).zip(&outgoing);
        let words = numbered.flat_map(|(room, direction)| {
            let words = direction.words(room);
            let words = words.filter(move |head| usize::from(head.lane) % rails == rail);
            words.map(move |head| {
                let (at, _) = direction.place(&head).expect("the direction has its own words");
                WatchedWord { head, at, sent: 0, write: 0 }
            })
        });
        let mut watched: Vec<_> = words.collect();
        watched.sort_by_key(|it| it.head.kind == WordKind::Consumed);
        Self {
            watched,
            peer,
            stream,
            outgoing,
            incoming,
            next: 0,
            writes_to,
            sending: None,
            receiving: IncomingWord::default(),
            landing: Vec::new(),
            is_flushing: false,
            goodbye: Goodbye::None,
            has_left: false,
            quiet: 0,
        }
    }

    pub(super) fn say_goodbye(&mut self) {
        if self.goodbye == Goodbye::None {
            self.goodbye = Goodbye::Wanted;
        }
    }

    /// True once the goodbye has arrived at the peer's host. A stream that is closed before may lose it.
    pub(super) fn has_ended(&self) -> bool {
        self.has_left || (self.goodbye == Goodbye::Said && self.stream.unsent() == 0)
    }

    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        self.quiet = QUIET;
        self.has_left || self.stream.prepare_to_sleep()
    }

    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        // A closed stream would end every sleep.
        if self.has_left { None } else { self.stream.interest(true, self.sending.is_some()) }
    }

    /// Sends and receives as much as is possible now. Returns true if something has moved.
    pub(super) fn drive(&mut self, copy: &MailboxCopy) -> Result<bool> {
        let moved = match self.exchange(copy) {
            // A peer that leaves, too, says none to a rank whose goodbye it has.
            Err(_) if self.goodbye == Goodbye::Said => {
                self.has_left = true;
                true
            }
            moved => moved?,
        };
        self.quiet = if moved { 0 } else { self.quiet.saturating_add(1) };
        Ok(moved)
    }

    fn exchange(&mut self, copy: &MailboxCopy) -> Result<bool> {
        let pushed = self.push(copy);
        let pulled = self.pull(copy)?;
        match pushed {
            Ok(pushed) => Ok(pulled | pushed),
            // A rank that leaves closes its end behind its goodbye, which may have arrived, or wait behind a
            // message that waits for an adapter.
            Err(_) if self.has_left || self.is_flushing || self.receiving.whole().is_some() => {
                Ok(true)
            }
            Err(fault) => Err(fault),
        }
    }

    fn push(&mut self, copy: &MailboxCopy) -> Result<bool> {
        let mut has_moved = false;
        while !self.has_left {
            if self.sending.is_none() {
                self.sending = self.next_message(copy);
            }
            if !self.write_directly()? {
                break;
            }
            let Some(OutgoingWord { head, body, sent, .. }) = &mut self.sending else { break };
            // SAFETY: the reader has not received all of it, as long as its message has not left.
            let bytes = unsafe { copy.slot(*body) }.as_view();
            let more = self.stream.send(&head.to_bytes(), bytes, *sent)?;
            if more == 0 {
                break;
            }
            has_moved = true;
            *sent += more;
            if *sent == HEAD + body.len {
                if head.kind == WordKind::Goodbye {
                    self.goodbye = Goodbye::Said;
                }
                self.sending = None;
            }
        }
        Ok(has_moved)
    }

    /// Writes the bytes of the next message to the peer's copy, if they are many and it is registered.
    /// False if there is no room for the write now.
    fn write_directly(&mut self) -> Result<bool> {
        let (Some(to), Some(message)) = (self.writes_to, &mut self.sending) else {
            return Ok(true);
        };
        let OutgoingWord { head, body, sent: 0, word } = message else { return Ok(true) };
        let direction = &self.outgoing[usize::from(head.room)];
        if body.len < if direction.is_of_gpus() { 1 } else { LEAST_DIRECT } {
            return Ok(true);
        }
        let to = to.from(direction.at_reader(body.start));
        let direct = self.stream.direct().expect("it has registered memory");
        // SAFETY: the slot stays as it is until its reader has consumed it, and `consumed` is held back until the
        // write is complete. Nobody reads the peer's copy of the slot before the message has arrived.
        let Some(write) = unsafe { direct.write((body.start, body.len), to) }? else {
            return Ok(false);
        };
        self.watched[*word].write = write;
        (head.kind, *body) = (WordKind::Written, CopyRange::default());
        Ok(true)
    }

    /// True if the word says that the peer has read bytes that the adapter of this rank may still read.
    fn frees_early(&mut self, head: &WordHead) -> Result<bool> {
        if head.kind != WordKind::Consumed {
            return Ok(false);
        }
        let room = answered(head.room, self.outgoing.len());
        let is_freed = |word: &&WatchedWord| {
            let of = &word.head;
            let is_there = (of.kind, of.room, of.lane) == (WordKind::Arrived, room, head.lane);
            is_there && word.sent >> MARK_BITS <= head.word
        };
        let last = self.watched.iter().filter(is_freed).map(|word| word.write).max();
        match (last.filter(|write| *write > 0), self.stream.direct()) {
            (Some(write), Some(direct)) => Ok(!direct.is_complete(write)?),
            _ => Ok(false),
        }
    }

    /// The message of the next word that has changed, of a publication if there is one: kernels wait for these.
    /// A goodbye behind all words.
    fn next_message(&mut self, copy: &MailboxCopy) -> Option<OutgoingWord> {
        let Self { watched, outgoing, next, .. } = self;
        let sends_all = self.quiet >= QUIET || self.goodbye != Goodbye::None;
        let publications = watched.partition_point(|it| it.head.kind != WordKind::Consumed);
        let first = *next;
        for at in (first..publications).chain(0..first).chain(publications..watched.len()) {
            let word = &mut watched[at];
            // The bytes of a publication were written before it.
            let value = copy.word(word.at).load(Ordering::Acquire);
            let direction = &outgoing[usize::from(word.head.room)];
            let credits = (direction.slots as u64 / 2).max(2);
            let is_due = at < publications || sends_all || value.wrapping_sub(word.sent) >= credits;
            if value == word.sent || !is_due {
                continue;
            }
            (word.sent, word.write) = (value, 0);
            if at < publications {
                *next = (at + 1) % publications;
            }
            let mut head = WordHead { word: value, ..word.head };
            if head.kind == WordKind::Arrived {
                let length = copy.word(direction.length(&head)).load(Ordering::Relaxed);
                head.length = u32::try_from(length).unwrap_or(u32::MAX);
            }
            let (_, body) = direction.place(&head).expect("a part of a publication fits its slot");
            return Some(OutgoingWord { head, body, sent: 0, word: at });
        }
        let says_goodbye = self.goodbye == Goodbye::Wanted;
        let (head, body) = (WordHead::GOODBYE, CopyRange::default());
        says_goodbye.then_some(OutgoingWord { head, body, sent: 0, word: 0 })
    }

    fn pull(&mut self, copy: &MailboxCopy) -> Result<bool> {
        let mut has_moved = false;
        while !self.has_left {
            let Some(arrival) = self.next_arrival(copy, &mut has_moved)? else {
                match self.land(copy)? {
                    true => has_moved = true,
                    false => break,
                }
                continue;
            };
            self.receiving = IncomingWord::default();
            has_moved = true;
            match arrival {
                WordArrival { written: Some(_), .. } => self.landing.push(arrival),
                WordArrival { at: Some(at), head, .. } => {
                    copy.word(at).store(head.word, Ordering::Release);
                }
                WordArrival { at: None, .. } => self.has_left = true,
            }
        }
        Ok(has_moved)
    }

    /// The next message, if all of it has arrived and it need not wait.
    fn next_arrival(
        &mut self,
        copy: &MailboxCopy,
        has_moved: &mut bool,
    ) -> Result<Option<WordArrival>> {
        loop {
            if let Some(arrival) = self.receiving.whole() {
                // A goodbye comes behind all words.
                let waits = arrival.at.is_none() && !self.landing.is_empty();
                let waits = waits || self.frees_early(&arrival.head)?;
                return Ok(Some(arrival).filter(|_| !waits));
            }
            if self.is_flushing || !self.receiving.pull(&mut self.stream, &self.incoming, copy)? {
                return Ok(None);
            }
            *has_moved = true;
        }
    }

    /// Writes the words whose bytes the GPU may not have seen, after one flush for all of them. True if it has.
    fn land(&mut self, copy: &MailboxCopy) -> Result<bool> {
        let Some(written) = self.landing.last().and_then(|last| last.written) else {
            return Ok(false);
        };
        let direct = self.stream.direct().expect("slots on GPUs have direct writes");
        self.is_flushing = !direct.flush(written)?;
        if self.is_flushing {
            return Ok(false);
        }
        for WordArrival { at, head, .. } in self.landing.drain(..) {
            let at = at.expect("it is the word of a publication");
            copy.word(at).store(head.word, Ordering::Release);
        }
        Ok(true)
    }
}

/// The room of the sender of a publication whose reader writes `consumed` in its own room `room`, of so many:
/// the last two are those of messages to the other rank and from there.
fn answered(room: u8, rooms: usize) -> u8 {
    match rooms - usize::from(room) {
        1 => room - 1,
        2 => room + 1,
        _ => room,
    }
}
