//! Messages between two ranks: sent by one, received by the other, known to nobody else.
//!
//! # The law
//!
//! A message goes from one rank to another, with a tag. The messages of a pair keep their order: a
//! receive takes the *first* message of its pair that has its tag and that no earlier receive took.
//! Tags may be received in any order, because a receiver keeps what it is not yet asked for, within
//! bounds:
//!
//! * A message of at most 16 KiB is **short**. It leaves at once, and the send is over when it has
//!   left, whether or not the receiver has asked for it. For each pair at most 64 KiB of short
//!   messages wait so, counting 64 bytes for each; what is beyond that is treated as long.
//! * Any other message is **long**. It is announced, and its bytes stay where they are until the
//!   receiver asks for them; then they go straight to their place. So a long send waits for its
//!   receive: two ranks that send to one another first and receive then wait for ever (until the
//!   deadline), unless they do both in one group.
//! * A group is one schedule: its sends, then its receives. No two of its steps use the same span,
//!   so in conflict order all of them may begin at once, and the driver posts them all before it
//!   waits for any. So no order within a group and no size can make it wait for itself. For each
//!   pair about 1000 messages may be announced ahead of their receives.
//!
//! So a receiver never keeps more than 128 KiB for each sender, and nobody needs to negotiate.
//!
//! # The links
//!
//! Every direction of every pair has a stream of its own, apart from those of collectives: what one
//! of them leaves unread holds up no other, and collectives pay nothing. The *sender* makes it, at
//! its first message, without its receiver's help; a receiver takes streams as they come. On the
//! way out go messages ([`Frame`]s), on the way back grants and what was taken of the room above.
//!
//! Between processes of one host a link begins as a connection, too. Its sender says where shared
//! memory may be brought to, its receiver brings some when it comes to read that, and from then on
//! both go through it ([`door`]). Where that fails (other network namespaces, no memory left) the
//! connection stays.

mod door;
mod drive;
mod frame;
mod incoming;
mod outgoing;
mod post;
mod shown;
mod way;

use super::{AnyStream, Moved};
use door::Door;
use incoming::Incoming;
use maypole_transports::{Alarm, Fault, Pipe, Waiting, mem};
use outgoing::Outgoing;
pub(crate) use post::{Batch, Part};
use std::io;
use std::time::{Duration, Instant};

/// Bytes of a message that does not wait for its receiver.
const SHORT: usize = 16 << 10;
/// Most bytes of short messages of one pair that wait. As much again may be announced.
const ROOM: usize = 64 << 10;
/// What a message takes of that besides its bytes.
const COST: usize = 64;
/// A receiver reports what it took once it is this much.
const REPORT: usize = ROOM / 4;
/// Bytes that a rank's stream to itself holds.
const SELF: usize = 64 << 10;
/// How long a leaving rank waits until what it sent has arrived.
const LINGER: Duration = Duration::from_secs(5);

/// One rank's links for messages, each made at its first use.
#[derive(Debug)]
pub(crate) struct Pairs {
    rank: usize,
    world: usize,
    /// By rank: the links on which we send.
    to: Vec<Option<Box<Outgoing>>>,
    /// By rank: the links on which we receive.
    from: Vec<Option<Box<Incoming>>>,
    /// From whom a receive from any rank takes first, if several have sent.
    first: usize,
    /// Links for which we may bring shared memory.
    pipes: usize,
    /// Something has moved since the last nap.
    moved: bool,
}

/// How messages reach their peers: what the links need of the group's control plane.
pub(crate) trait Connector {
    /// Makes a stream on which this rank sends messages to `peer`, without the peer's help. Each
    /// rank makes it at most once for each peer.
    ///
    /// # Errors
    /// Why there is no stream by `deadline`, as a sentence.
    fn dial(&self, peer: usize, deadline: Instant) -> Result<AnyStream, String>;

    /// Takes the streams that peers made to this rank since the last call, each with its peer.
    fn callers(&self) -> Vec<(usize, AnyStream)>;

    /// True if `peer` has left the group in order.
    fn has_left(&self, peer: usize) -> bool;
}

/// What a batch runs in.
pub(crate) struct Scene<'a> {
    pub(crate) control: &'a dyn Connector,
    pub(crate) waiting: Waiting,
    pub(crate) alarm: &'a Alarm,
    /// Ranks with equal numbers can share memory.
    pub(crate) hosts: &'a [usize],
    /// How much of that this rank may make for messages.
    pub(crate) memory: usize,
}

/// Why a batch did not end, and which of its messages shows it.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) part: Part,
    pub(crate) peer: Option<usize>,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// The message is not what the receive is for; what it is instead.
    Mismatch(String),
    TimedOut,
    Alarmed,
    /// The peer has left in order.
    Left,
    Lost(Fault),
    /// No link to the peer could be made.
    Unconnected(String),
}

impl Stop {
    fn send(at: usize, peer: usize, why: Why) -> Self {
        Self { part: Part::Send(at), peer: Some(peer), why }
    }

    fn receive(at: usize, peer: Option<usize>, why: Why) -> Self {
        Self { part: Part::Receive(at), peer, why }
    }
}

/// The other end does not keep to the protocol.
fn broken(why: &str) -> Fault {
    Fault::Io(io::Error::new(io::ErrorKind::InvalidData, why))
}

impl Pairs {
    pub(crate) fn new(rank: usize, world: usize) -> Self {
        Self { rank, world, to: Vec::new(), from: Vec::new(), first: 0, pipes: 0, moved: false }
    }

    /// True if a message of `bytes` bytes to `to` leaves without waiting for its receiver.
    pub(crate) fn is_short(&self, bytes: usize, to: usize) -> bool {
        match self.to.get(to) {
            Some(Some(link)) => link.has_room(bytes),
            _ => bytes <= SHORT,
        }
    }

    /// Makes the link to `peer`, if it is not there.
    fn open(&mut self, peer: usize, scene: &Scene<'_>) -> Result<(), String> {
        if self.to.is_empty() {
            self.to.resize_with(self.world, || None);
        }
        if self.to[peer].is_some() {
            return Ok(());
        }
        let stream = if peer == self.rank {
            let (out, back) = mem::pair(SELF);
            self.adopt(peer, AnyStream::Mem(back), scene);
            AnyStream::Mem(out)
        } else {
            scene.control.dial(peer, scene.waiting.end(Instant::now()))?
        };
        // Without one the stream serves as well.
        let door = if self.can_share(peer, &stream, scene) { Door::new().ok() } else { None };
        self.to[peer] = Some(Box::new(Outgoing::new(stream, door)));
        Ok(())
    }

    /// Takes the link that `peer` made.
    fn adopt(&mut self, peer: usize, stream: AnyStream, scene: &Scene<'_>) {
        if self.from.is_empty() {
            self.from.resize_with(self.world, || None);
        }
        let shares = self.can_share(peer, &stream, scene);
        // Who dials again never heard that the first time worked.
        let place = &mut self.from[peer];
        if place.as_ref().is_none_or(|link| link.is_fresh()) {
            let brings = shares && self.pipes < scene.memory / Pipe::BYTES;
            self.pipes += usize::from(brings);
            *place = Some(Box::new(Incoming::new(peer, stream, brings)));
        }
    }

    /// True if `stream` leads to another process that can map our memory.
    fn can_share(&self, peer: usize, stream: &AnyStream, scene: &Scene<'_>) -> bool {
        matches!(stream, AnyStream::Tcp(_)) && scene.hosts[peer] == scene.hosts[self.rank]
    }

    /// Takes the links that peers made meanwhile.
    fn answer_calls(&mut self, scene: &Scene<'_>) {
        for (peer, stream) in scene.control.callers() {
            self.adopt(peer, stream, scene);
        }
    }

    /// By rank: how much was sent to it.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, Moved)> {
        let others = self.to.iter().enumerate().filter(|(peer, _)| *peer != self.rank);
        others.filter_map(|(peer, link)| Some((peer, link.as_ref()?.sent)))
    }

    /// Lets what was sent arrive, unless the group has `failed`, and closes all links.
    pub(crate) fn leave(&mut self, failed: bool, control: &dyn Connector) {
        // Whoever still sends to us learns that nobody will receive it.
        drop(control.callers());
        self.to.iter_mut().flatten().for_each(|link| link.way.finish());
        let deadline = Instant::now() + LINGER;
        let unsent = |pairs: &mut Self| {
            pairs.to.iter_mut().flatten().for_each(|link| link.forget());
            pairs.to.iter().flatten().any(|link| link.fault.is_none() && link.way.unsent() > 0)
        };
        while !failed && unsent(self) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        (self.to, self.from) = (Vec::new(), Vec::new());
    }
}
