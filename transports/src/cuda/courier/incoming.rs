//! The incoming messages of a courier from one rank.

use super::message::{WordHead, WordKind};
use super::places::{CopyRange, Direction, MailboxCopy};
use crate::any_stream::AnyStream;
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::ViewMut;
use std::io;

/// The message that is being received.
#[derive(Debug, Default)]
pub(super) struct IncomingWord {
    head: [u8; HEAD],
    received: usize,
    /// Once the head has arrived.
    into: Option<WordArrival>,
}

/// The places of a word and of the bytes behind its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordArrival {
    pub(super) head: WordHead,
    /// `None` for a goodbye.
    pub(super) at: Option<usize>,
    body: CopyRange,
    /// The first byte that was written directly before, if it is in the memory of a GPU.
    pub(super) written: Option<usize>,
}

impl IncomingWord {
    /// Its parts, once all of it has arrived.
    pub(super) fn whole(&self) -> Option<WordArrival> {
        self.into.filter(|arrival| self.received == HEAD + arrival.body.len)
    }

    /// Receives bytes of it. Returns whether there were any.
    pub(super) fn pull(
        &mut self,
        stream: &mut AnyStream,
        rooms: &[Direction],
        copy: &MailboxCopy,
    ) -> Result<bool> {
        let body = match &self.into {
            // SAFETY: the publication has not arrived here, unless with the same bytes.
            Some(arrival) => unsafe { copy.slot(arrival.body) },
            None => ViewMut::EMPTY,
        };
        let more = stream.receive(&mut self.head, body, self.received)?;
        self.received += more;
        if self.received >= HEAD && self.into.is_none() {
            self.into = Some(arrival(rooms, self.head)?);
        }
        Ok(more > 0)
    }
}

/// The places of the message with this head.
fn arrival(rooms: &[Direction], head: [u8; HEAD]) -> Result<WordArrival> {
    let place = |head: WordHead| match head.kind {
        WordKind::Goodbye => Some((None, CopyRange::default(), None)),
        _ => {
            let room = rooms.get(usize::from(head.room))?;
            let (at, body) = room.place(&head)?;
            let none = CopyRange::default();
            match head.kind {
                WordKind::Arrived if room.is_of_gpus() && body.len > 0 => None,
                WordKind::Arrived => Some((Some(at), body, None)),
                WordKind::Written => {
                    let written = room.is_of_gpus().then(|| room.at_reader(body.start));
                    Some((Some(at), none, written))
                }
                _ => Some((Some(at), none, None)),
            }
        }
    };
    let found = WordHead::from_bytes(head).and_then(|head| Some((head, place(head)?)));
    let why = || io::Error::new(io::ErrorKind::InvalidData, "the peer names no place of a mailbox");
    let (head, (at, body, written)) = found.ok_or_else(|| Fault::Io(why()))?;
    Ok(WordArrival { head, at, body, written })
}
