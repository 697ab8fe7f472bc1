//! What a call wants to send and to receive.

use super::frame::Label;
use crate::element::{DataType, Element};
use maypole_kernels::{View, ViewMut};
use std::fmt;

/// A message that is to leave.
#[derive(Debug)]
pub(in crate::comm) struct Sending<'a> {
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) data: View<'a>,
    /// All of it has left our memory.
    pub(super) done: bool,
}

impl Sending<'_> {
    pub(super) fn label(&self) -> Label {
        Label { tag: self.tag, kind: self.kind, bytes: self.data.len() }
    }
}

/// A message that is to come.
#[derive(Debug)]
pub(in crate::comm) struct Receiving<'a> {
    /// From whom; `None` for whoever comes first.
    pub(super) from: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) into: ViewMut<'a>,
    /// Nothing shorter will do.
    pub(super) exact: bool,
    pub(super) state: State,
}

/// How far a receive has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Open,
    /// This rank's message, of so many bytes, is on its way.
    Granted(usize, usize),
    /// This rank's message, of so many bytes, is here.
    Done(usize, usize),
}

impl Receiving<'_> {
    pub(super) fn accepts(&self, peer: usize, tag: u32) -> bool {
        self.state == State::Open && self.tag == tag && self.from.is_none_or(|from| from == peer)
    }

    pub(super) fn fits(&self, label: Label) -> bool {
        let (has, room) = (label.bytes, self.into.len());
        self.kind == label.kind && if self.exact { has == room } else { has <= room }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Done(..))
    }
}

/// Everything that one call posts before it waits for any of it.
#[derive(Debug, Default)]
pub(in crate::comm) struct Batch<'a> {
    pub(super) sends: Vec<Sending<'a>>,
    pub(super) receives: Vec<Receiving<'a>>,
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Send(usize),
    Receive(usize),
}

impl<'a> Batch<'a> {
    pub(in crate::comm) fn send<T: Element>(&mut self, data: &'a [T], to: usize, tag: u32) {
        self.sends.push(Sending { to, tag, kind: T::DATA_TYPE, data: View::of(data), done: false });
    }

    pub(in crate::comm) fn receive<T: Element>(&mut self, into: &'a mut [T], from: Option<usize>, tag: u32) {
        let (kind, into, exact) = (T::DATA_TYPE, ViewMut::of(into), from.is_some());
        self.receives.push(Receiving { from, tag, kind, into, exact, state: State::Open });
    }

    /// Of each receive, in order: whose message came, and how many elements it has.
    pub(in crate::comm) fn arrivals(&self) -> Vec<(usize, usize)> {
        let arrival = |receive: &Receiving<'_>| match receive.state {
            State::Done(peer, bytes) => (peer, bytes / receive.kind.size()),
            State::Open | State::Granted(..) => unreachable!("a batch ends when all of it is done"),
        };
        self.receives.iter().map(arrival).collect()
    }

    pub(super) fn is_done(&self) -> bool {
        self.received() && self.sends.iter().all(|send| send.done)
    }

    pub(super) fn received(&self) -> bool {
        self.receives.iter().all(Receiving::is_done)
    }

    /// The first message that is still awaited, and whom it awaits if that is known.
    pub(super) fn awaited(&self) -> (Part, Option<usize>) {
        if let Some(at) = self.receives.iter().position(|receive| !receive.is_done()) {
            let peer = match self.receives[at] {
                Receiving { state: State::Granted(peer, _), .. } => Some(peer),
                Receiving { from, .. } => from,
            };
            return (Part::Receive(at), peer);
        }
        let at = self.sends.iter().position(|send| !send.done).unwrap_or(0);
        (Part::Send(at), self.sends.get(at).map(|send| send.to))
    }

    /// What `part` is, in words.
    pub(super) fn describe(&self, part: Part) -> String {
        let one = match part {
            Part::Send(at) => self.sends[at].to_string(),
            Part::Receive(at) => self.receives[at].to_string(),
        };
        match self.sends.len() + self.receives.len() {
            1 => one,
            all => format!("{one}, one of a group of {all}"),
        }
    }

    /// Where `part` stands in its batch, sends first.
    pub(super) fn place(&self, part: Part) -> usize {
        match part {
            Part::Send(at) => at,
            Part::Receive(at) => self.sends.len() + at,
        }
    }
}

impl fmt::Display for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.data.len() / self.kind.size();
        write!(f, "send({count} x {}, to rank {}, tag {})", self.kind.name(), self.to, self.tag)
    }
}

impl fmt::Display for Receiving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, kind) = (self.into.len() / self.kind.size(), self.kind.name());
        match self.from {
            Some(from) => write!(f, "recv({count} x {kind}, from rank {from}, tag {})", self.tag),
            None => write!(f, "recv_any(up to {count} x {kind}, tag {})", self.tag),
        }
    }
}
