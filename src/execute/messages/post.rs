//! What a call wants to send and to receive.

use super::frame::Label;
use crate::execute::record::Message;
use crate::schedule::{Schedule, Step, input, output};
use maypole_kernels::{DataType, View, ViewMut};
use std::fmt;

/// A message that is to leave.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) data: View<'a>,
    /// How many messages went to the same rank before it; known once it is posted.
    pub(super) number: u64,
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
pub(crate) struct Receiving<'a> {
    /// From whom; `None` for whoever comes first.
    pub(super) from: Option<usize>,
    pub(super) tag: u32,
    pub(super) kind: DataType,
    pub(super) into: ViewMut<'a>,
    /// Nothing shorter will do.
    pub(super) exact: bool,
    /// How many messages came from the same rank before it; known once it is taken.
    pub(super) number: u64,
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
pub(crate) struct Batch<'a> {
    pub(super) sends: Vec<Sending<'a>>,
    pub(super) receives: Vec<Receiving<'a>>,
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Send(usize),
    Receive(usize),
}

impl<'a> Batch<'a> {
    /// Adds a send of `data`, elements of `kind`, to rank `to`.
    pub(crate) fn send(&mut self, kind: DataType, data: View<'a>, to: usize, tag: u32) {
        self.sends.push(Sending { to, tag, kind, data, number: 0, done: false });
    }

    /// Adds a receive into `into`, elements of `kind`, from rank `from` or from any rank.
    pub(crate) fn receive(
        &mut self,
        kind: DataType,
        into: ViewMut<'a>,
        from: Option<usize>,
        tag: u32,
    ) {
        let exact = from.is_some();
        self.receives.push(Receiving {
            from,
            tag,
            kind,
            into,
            exact,
            number: 0,
            state: State::Open,
        });
    }

    /// Of each receive, in order: whose message came, and how many elements it has.
    pub(crate) fn arrivals(&self) -> Vec<(usize, usize)> {
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
    pub(crate) fn awaited(&self) -> (Part, Option<usize>) {
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

    /// What this rank does, as its part of a schedule: see
    /// [`Group::schedule`](crate::comm::Group::schedule). `None` while it is not known from whom
    /// something comes.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let send = |(at, send): (usize, &Sending<'_>)| Step::Send { from: input(at), to: send.to };
        let receive = |(at, receive): (usize, &Receiving<'_>)| {
            let from = receive.from.or(match receive.state {
                State::Granted(peer, _) | State::Done(peer, _) => Some(peer),
                State::Open => None,
            });
            Some(Step::Recv { into: output(at), from: from? })
        };
        let sends = self.sends.iter().enumerate().map(send).map(Some);
        let steps =
            sends.chain(self.receives.iter().enumerate().map(receive)).collect::<Option<_>>()?;
        Some(Schedule::new(self.sends.len().max(self.receives.len()).max(1), steps))
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.sends.len() + self.receives.len()
    }

    /// Bytes that are to leave, and bytes that there is room for.
    pub(crate) fn bytes(&self) -> usize {
        let leaving: usize = self.sends.iter().map(|send| send.data.len()).sum();
        leaving + self.receives.iter().map(|receive| receive.into.len()).sum::<usize>()
    }

    /// All of it, in words.
    pub(crate) fn title(&self) -> String {
        match self.len() {
            1 => self.describe(self.awaited().0),
            _ => format!("group({} sends, {} receives)", self.sends.len(), self.receives.len()),
        }
    }

    /// Which messages are done, as rank `rank` tells it.
    pub(super) fn done(&self, rank: usize) -> impl Iterator<Item = Message> {
        let sends =
            self.sends.iter().enumerate().filter(|(_, send)| send.done).map(move |(at, send)| {
                let Sending { to, tag, number, .. } = *send;
                let (bytes, step) = (send.data.len(), self.place(Part::Send(at)));
                Message { from: rank, to, comes: false, bytes, tag, number, step }
            });
        let receives = self.receives.iter().enumerate().filter_map(move |(at, receive)| {
            let State::Done(from, bytes) = receive.state else { return None };
            let Receiving { tag, number, .. } = *receive;
            Some(Message {
                from,
                to: rank,
                comes: true,
                bytes,
                tag,
                number,
                step: self.place(Part::Receive(at)),
            })
        });
        sends.chain(receives)
    }

    /// What `part` is, in words.
    pub(crate) fn describe(&self, part: Part) -> String {
        let one = match part {
            Part::Send(at) => self.sends[at].to_string(),
            Part::Receive(at) => self.receives[at].to_string(),
        };
        match self.len() {
            1 => one,
            all => format!("{one}, one of a group of {all}"),
        }
    }

    /// The step that `part` is in [`schedule`](Self::schedule).
    pub(crate) fn place(&self, part: Part) -> usize {
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
