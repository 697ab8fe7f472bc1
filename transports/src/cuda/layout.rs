//! The layout of mailboxes in a rank's arena, equal on all ranks.

use super::launch::Protocol;
use maypole_kernels::packed::{MOST_SHORT_BYTES, MOST_SHORT_RANKS, MOST_SLOTS};

/// The alignment of all parts of an arena.
pub(super) const ALIGNMENT: usize = 256;

/// The mailboxes of one kind, equal on all ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// How publications arrive.
    pub protocol: Protocol,
    /// Blocks of threads that share a call.
    pub lanes: u32,
    /// Slots of each rank.
    pub slots: u32,
    /// Bytes of the longest publication.
    pub bytes: usize,
    /// Bytes of a publication for which one more lane pays.
    pub lane_bytes: usize,
    /// Lanes that every call has at least.
    pub least: u32,
}

/// The mailboxes of a group on GPUs, equal on all ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shapes {
    /// Those in which all ranks meet.
    pub groups: Vec<Shape>,
    /// Those of messages, one for each peer and direction.
    pub messages: Shape,
    /// Slots are in the memory of GPUs and all else in that of hosts: [`PendingSlots`](super::PendingSlots).
    pub slots_on_gpus: bool,
}

/// Which mailboxes a call uses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Room {
    /// Those of all ranks with this shape.
    Group(usize),
    /// Those of messages from this rank, which is rank 0 there, to a peer, which is rank 1.
    To(usize),
    /// Those of messages from a peer, which is rank 0 there, to this rank, which is rank 1.
    From(usize),
}

impl Room {
    /// The only other rank, in the rooms of messages, and whether this one sends.
    pub(super) fn message(self) -> Option<(usize, bool)> {
        match self {
            Self::Group(_) => None,
            Self::To(peer) => Some((peer, true)),
            Self::From(peer) => Some((peer, false)),
        }
    }
}

/// The layout of one mailbox in an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) slots: usize,
    pub(super) arrived: usize,
    pub(super) consumed: usize,
    pub(super) announced: usize,
}

impl Shape {
    /// The lanes of a call whose longest publication has `bytes` bytes, equal on all ranks: as many as pay,
    /// and as many as there are.
    pub fn lanes_of(&self, bytes: u64) -> u32 {
        let paying = bytes.div_ceil(self.lane_bytes as u64);
        paying.clamp(u64::from(self.least.clamp(1, self.lanes)), u64::from(self.lanes)) as u32
    }

    /// Bytes of a lane's piece of a slot, but for flags.
    pub(super) fn piece(&self) -> usize {
        self.bytes.div_ceil(16).div_ceil(self.lanes as usize) * 16
    }

    /// Bytes of a slot: each lane has a piece for its part of a publication.
    pub(super) fn slot_bytes(&self) -> usize {
        let lines = if self.protocol == Protocol::LowLatency { 2 } else { 1 };
        self.piece() * lines * self.lanes as usize
    }

    /// Places a mailbox of a group of `ranks`, with `slots` slots of its own, at `end`, and
    /// advances `end` past it.
    fn place(&self, ranks: usize, slots: u32, end: &mut usize) -> Parts {
        let mut take = |bytes| take(end, bytes);
        let counters = ranks * self.lanes as usize * size_of::<u64>();
        Parts {
            slots: take(slots as usize * self.slot_bytes()),
            arrived: take(counters * self.slots as usize),
            consumed: take(counters),
            announced: take(ranks * size_of::<u64>()),
        }
    }
}

/// Places a part of `bytes` bytes at `end`, and advances `end` past it.
pub(super) fn take(end: &mut usize, bytes: usize) -> usize {
    let start = *end;
    *end = (start + bytes).next_multiple_of(ALIGNMENT);
    start
}

/// The places of all mailboxes of a rank.
#[derive(Clone, Debug)]
pub(super) struct MailboxLayout {
    group: Vec<Parts>,
    /// By peer.
    to: Vec<Parts>,
    /// By peer. The receiver of messages has no slots.
    from: Vec<Parts>,
    /// The start of the lines of short calls, if the group is small enough.
    pub(super) short: Option<usize>,
    pub(super) bytes: usize,
}

/// Most blocks of a short call.
pub(super) const SHORT_BLOCKS: usize = MOST_SHORT_BYTES as usize / 8 / SHORT_THREADS;
/// Threads of a block of a short call, each of which has eight bytes.
pub(super) const SHORT_THREADS: usize = 512;

impl MailboxLayout {
    /// # Panics
    /// If a shape has more slots than kernels support, or a number that is no power of two, or one.
    pub(super) fn new(shapes: &Shapes, ranks: usize) -> Self {
        for Shape { slots, .. } in shapes.groups.iter().chain([&shapes.messages]) {
            // A kernel records the readers of a slot while it already prepares the next
            // publication: with one slot, that is the same slot.
            let fits = slots.is_power_of_two() && (2..=MOST_SLOTS).contains(slots);
            assert!(fits, "{slots} slots: a kernel needs a power of two from 2 to {MOST_SLOTS}");
        }
        let mut end = 0;
        let mut place = |shape: &Shape, ranks, has_slots| {
            let slots = if has_slots && !shapes.slots_on_gpus { shape.slots } else { 0 };
            shape.place(ranks, slots, &mut end)
        };
        let messages = &shapes.messages;
        let mut group: Vec<Parts> = shapes.groups.iter().map(|it| place(it, ranks, true)).collect();
        // A rank publishes its current call, in any of these rooms.
        let announced = group.first().map_or(0, |parts| parts.announced);
        group.iter_mut().for_each(|parts| parts.announced = announced);
        let to = (0..ranks).map(|_| place(messages, 2, true)).collect();
        let from = (0..ranks).map(|_| place(messages, 2, false)).collect();
        let lines = 2 * ranks * MOST_SHORT_BYTES as usize * 2;
        // Where ranks publish no lines, because couriers carry none, no call is made of them.
        let has_lines = shapes.groups.iter().any(|it| it.protocol == Protocol::LowLatency);
        let short = (has_lines && ranks <= MOST_SHORT_RANKS).then(|| take(&mut end, lines));
        Self { group, to, from, short, bytes: end }
    }

    /// Where ranks publish which call of all ranks they make.
    pub(super) fn announced(&self) -> usize {
        self.group.first().map_or(0, |parts| parts.announced)
    }

    /// The ranks that meet in `room` of rank `me` among `ranks`, and where the mailbox of each one
    /// lies in its arena.
    pub(super) fn members(&self, room: Room, me: usize, ranks: usize) -> Vec<(usize, Parts)> {
        match room {
            Room::Group(shape) => (0..ranks).map(|rank| (rank, self.group[shape])).collect(),
            Room::To(peer) => vec![(me, self.to[peer]), (peer, self.from[me])],
            Room::From(peer) => vec![(peer, self.to[me]), (me, self.from[peer])],
        }
    }
}

impl Shapes {
    /// Most blocks of a kernel: as many as are reserved for the group on the GPU of each rank.
    pub(super) fn most_blocks(&self) -> u32 {
        self.groups.iter().map(|shape| shape.lanes).max().unwrap_or(1)
    }

    /// The mailboxes of `room`.
    pub fn of(&self, room: Room) -> &Shape {
        match room {
            Room::Group(shape) => &self.groups[shape],
            Room::To(_) | Room::From(_) => &self.messages,
        }
    }

    /// All rooms of a rank of a group of `ranks`.
    pub(super) fn rooms(&self, ranks: usize) -> impl Iterator<Item = Room> {
        let group = (0..self.groups.len()).map(Room::Group);
        group.chain((0..ranks).map(Room::To)).chain((0..ranks).map(Room::From))
    }

    /// The place of `room` among [`rooms`](Self::rooms).
    pub(super) fn index(&self, room: Room, ranks: usize) -> usize {
        let group = self.groups.len();
        match room {
            Room::Group(shape) => shape,
            Room::To(peer) => group + peer,
            Room::From(peer) => group + ranks + peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of the hosts is pinned.
    #[test]
    fn slots_on_gpus_take_no_memory_of_the_host() {
        let protocol = Protocol::Simple;
        let long = Shape { protocol, lanes: 8, slots: 4, bytes: 2 << 20, lane_bytes: 1, least: 1 };
        let (groups, messages) = (vec![long], Shape { bytes: 1 << 20, ..long });
        let bytes = |slots_on_gpus| {
            let shapes = Shapes { groups: groups.clone(), messages, slots_on_gpus };
            MailboxLayout::new(&shapes, 3).bytes
        };
        assert_eq!(bytes(false) - bytes(true), 4 * (2 << 20) + 3 * 4 * (1 << 20));
    }

    /// The kernels count with the same numbers, or they would write out of bounds.
    #[test]
    fn short_calls_have_the_numbers_of_the_kernels() {
        let numbers = format!(
            "enum {{ MOST_SHORT_RANKS = {MOST_SHORT_RANKS}, SHORT_BLOCKS = {SHORT_BLOCKS}, \
             SHORT_THREADS = {SHORT_THREADS} }};"
        );
        let same = maypole_kernels::cuda::PROGRAM_HEADER.contains(&numbers);
        assert!(same, "program.h has other numbers than: {numbers}");
    }
}
