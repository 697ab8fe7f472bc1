//! Where the words and the slots of two ranks lie in the copy of the mailboxes that a host has.

use super::super::gpu_slots::SlotLayout;
use super::super::layout::{MailboxLayout, Room, Shapes};
use super::message::{WordHead, WordKind};
use crate::shm::Segment;
use maypole_kernels::ViewMut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const WORD: usize = size_of::<u64>();

/// A host's copy of the mailboxes of all ranks of a group.
#[derive(Debug)]
pub(super) struct MailboxCopy {
    segment: Arc<Segment>,
    pub(super) ranks: usize,
    /// If slots are in the memory of GPUs.
    slots: Option<SlotLayout>,
}

/// Some bytes of the copy, or of the memory of the writer's GPU if its slots are there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct CopyRange {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl MailboxCopy {
    /// That in `segment`, for `ranks` ranks, whose slots are there or in the memory of their GPUs.
    pub(super) fn new(segment: Arc<Segment>, ranks: usize, slots: Option<SlotLayout>) -> Self {
        Self { segment, ranks, slots }
    }

    /// The rooms in which the first rank writes to the second: those of groups, that of its messages to the
    /// other rank, and that of messages from there.
    pub(super) fn directions(
        &self,
        layout: &MailboxLayout,
        shapes: &Shapes,
        pair: (usize, usize),
    ) -> Vec<Direction> {
        let groups = (0..shapes.groups.len()).map(Room::Group);
        let rooms = groups.chain([Room::To(pair.1), Room::From(pair.1)]);
        let stride = self.segment.len() / self.ranks;
        let direction = |room| {
            let direction = Direction::new(layout, shapes, (stride, self.ranks), room, pair);
            match &self.slots {
                Some(slots) => Direction {
                    first_slot: slots.own_start(room),
                    twin: Some(slots.twin_start(pair.1, pair.0, room)),
                    ..direction
                },
                None => direction,
            }
        };
        rooms.map(direction).collect()
    }

    /// The word that begins at byte `at`.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(WORD) && at + WORD <= self.segment.len(), "it is in the copy");
        // SAFETY: the word is in a mapping that lives as long as `self`, which begins at a page, and all
        // threads, processes and kernels access it atomically.
        unsafe { AtomicU64::from_ptr(self.segment.start().as_ptr().add(at).cast()) }
    }

    /// The bytes of a slot.
    ///
    /// # Safety
    /// To be read: the publication there has arrived, and its reader on the other host has not received all
    /// of it. To be written: that publication has not arrived here, or with the same bytes.
    pub(super) unsafe fn slot(&self, range: CopyRange) -> ViewMut<'_> {
        // SAFETY: the caller guarantees that no kernel writes what is read, and that none reads what is written
        // with other bytes.
        unsafe { self.segment.view() }.slice(range.start, range.len)
    }
}

/// What one rank writes to another one in a room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) lanes: usize,
    /// None if the writer only receives in the room.
    pub(super) slots: usize,
    /// Bytes of a lane's piece of a slot, and of the slot.
    piece: usize,
    slot_bytes: usize,
    /// The words are in the mailbox of the reader.
    arrived: usize,
    consumed: usize,
    announced: usize,
    /// The slots are in the mailbox of the writer, and the bytes of what lies in each.
    first_slot: usize,
    /// Where they are in the memory of the reader's GPU. `None`: at the same place of the copy of its host.
    twin: Option<usize>,
    lengths: usize,
    /// Its calls are announced in this room.
    pub(super) announces: bool,
}

impl Direction {
    fn new(
        layout: &MailboxLayout,
        shapes: &Shapes,
        (stride, ranks): (usize, usize),
        room: Room,
        (from, to): (usize, usize),
    ) -> Self {
        let members = layout.members(room, from, ranks);
        let index = |rank| members.iter().position(|(member, _)| *member == rank);
        let index = |rank| index(rank).expect("both meet in the room");
        let (writer, reader) = (members[index(from)].1, members[index(to)].1);
        let (of_writer, of_reader) = (from * stride, to * stride);
        let shape = shapes.of(room);
        let (lanes, slots) = (shape.lanes as usize, shape.slots as usize);
        let mine = index(from) * lanes * WORD;
        Self {
            lanes,
            slots: if matches!(room, Room::From(_)) { 0 } else { slots },
            piece: shape.piece(),
            slot_bytes: shape.slot_bytes(),
            arrived: of_reader + reader.arrived + mine * slots,
            consumed: of_reader + reader.consumed + mine,
            announced: of_reader + reader.announced + index(from) * WORD,
            first_slot: of_writer + writer.slots,
            twin: None,
            lengths: of_writer + writer.arrived + mine * slots,
            announces: !matches!(room, Room::Group(1..)),
        }
    }

    /// The place of a word; `None` if there is no such word, or if so many bytes are no piece of a
    /// slot.
    pub(super) fn place(&self, head: &WordHead) -> Option<(usize, CopyRange)> {
        let [lane, slot] = [head.lane, head.slot].map(usize::from);
        let len = head.length as usize;
        let has_lane = lane < self.lanes;
        let at = match head.kind {
            WordKind::Arrived | WordKind::Written
                if has_lane && slot < self.slots && len <= self.piece =>
            {
                let start = self.first_slot + slot * self.slot_bytes + lane * self.piece;
                let at = self.arrived + (lane * self.slots + slot) * WORD;
                return Some((at, CopyRange { start, len }));
            }
            WordKind::Consumed if has_lane && len == 0 => self.consumed + lane * WORD,
            WordKind::Announced if self.announces && len == 0 => self.announced,
            _ => return None,
        };
        Some((at, CopyRange::default()))
    }

    /// True if slots are in the memory of GPUs, which no courier reads or writes.
    pub(super) fn is_of_gpus(&self) -> bool {
        self.twin.is_some()
    }

    /// Where bytes of the writer's slots are on the reader's host.
    pub(super) fn at_reader(&self, start: usize) -> usize {
        self.twin.map_or(start, |twin| twin + start - self.first_slot)
    }

    /// The word with the bytes of a lane's publication in a slot.
    pub(super) fn length(&self, head: &WordHead) -> usize {
        let [lane, slot] = [head.lane, head.slot].map(usize::from);
        self.lengths + (lane * self.slots + slot) * WORD
    }

    /// All words that the writer writes here, in room `room` of the sender.
    pub(super) fn words(&self, room: u8) -> impl Iterator<Item = WordHead> {
        let head = move |kind, lane, slot| {
            let [lane, slot] = [lane, slot].map(|number: usize| number as u8);
            WordHead { kind, room, lane, slot, ..WordHead::GOODBYE }
        };
        let Self { lanes, slots, announces, .. } = *self;
        let arrived = (0..lanes)
            .flat_map(move |lane| (0..slots).map(move |slot| head(WordKind::Arrived, lane, slot)));
        let consumed = (0..lanes).map(move |lane| head(WordKind::Consumed, lane, 0));
        let announced = announces.then(|| head(WordKind::Announced, 0, 0));
        announced.into_iter().chain(arrived).chain(consumed)
    }
}
