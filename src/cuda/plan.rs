//! Which mailboxes and windows a call on GPUs uses, and what its messages and bytes cost.

use crate::lower::DeviceSlots;
use crate::tuner::{CostTable, Costs};
use maypole_transports::cuda::{Protocol, Room, Shape, Shapes};

/// Publications up to this go in lines: twice the bytes, but nobody waits for a counter.
const LONGEST_LINES: usize = 64 << 10;
/// Lanes of short publications.
const LANES_OF_LINES: u32 = 8;
/// Most lanes of long publications.
const MOST_LANES: u32 = 66;
/// Bytes of a long publication, which lanes share: fewer, and counters cost more than bytes.
const LONGEST: usize = 8 << 20;
/// Lanes of messages, and bytes that one lane moves between two counters.
const LANES_OF_MESSAGES: u32 = 8;
const MESSAGE_BYTES: usize = 64 << 10;
/// Slots of long publications.
const SLOTS: u32 = 4;
/// Slots of short publications: some algorithms make many in a row.
const SLOTS_OF_LINES: u32 = 16;

/// What the calls of GPUs cost, as measured on one: messages over a link of NVIDIA's are not slower.
pub(super) const COSTS: CostTable = CostTable {
    tiny: Costs { alpha: 3_000_000, beta: 8_000, gamma: 0 },
    small: Costs { alpha: 3_000_000, beta: 8_000, gamma: 0 },
    chunk: Costs { alpha: 6_000_000, beta: 2_000, gamma: 0 },
    ..CostTable::BUILT_IN
};

/// The mailboxes of `ranks` ranks, of which at most `crowd` share a GPU of `processors`
/// multiprocessors. Every block of every rank must run at the same time, so ranks share a GPU's.
pub(super) fn shapes(crowd: u32, processors: u32) -> Shapes {
    let share = (processors / crowd.max(1)).max(1);
    let lanes = share.min(MOST_LANES);
    let lines = Shape {
        protocol: Protocol::LowLatency,
        lanes: lanes.min(LANES_OF_LINES),
        slots: SLOTS_OF_LINES,
        bytes: LONGEST_LINES,
    };
    let long = Shape { protocol: Protocol::Simple, lanes, slots: SLOTS, bytes: LONGEST };
    let lanes = lanes.min(LANES_OF_MESSAGES);
    let messages = Shape { lanes, bytes: MESSAGE_BYTES * lanes as usize, ..long };
    Shapes { collectives: vec![lines, long], messages }
}

/// The mailboxes of a call whose longest chunk has `longest` bytes, and the slots that it is lowered
/// for.
pub(super) fn room(shapes: &Shapes, longest: usize) -> (Room, DeviceSlots) {
    let fits = |shape: &&Shape| longest <= shape.bytes;
    let last = shapes.collectives.len() - 1;
    let index = shapes.collectives.iter().position(|shape| fits(&shape)).unwrap_or(last);
    let shape = &shapes.collectives[index];
    (Room::Group(index), DeviceSlots { bytes: shape.bytes, count: shape.slots as usize })
}
