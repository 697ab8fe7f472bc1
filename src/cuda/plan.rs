//! The mailboxes and windows of a call on GPUs, and the costs of its messages and bytes.

use super::place::MailboxPlace;
use crate::lower::DeviceSlots;
use crate::tuner::{CostTable, Costs};
use maypole_transports::board::CHUNK;
use maypole_transports::cuda::{MOST_LAUNCHES, Protocol, Room, Shape, Shapes};

/// Publications up to this go in lines: twice the bytes, but no wait for a counter.
pub(super) const LONGEST_LINES: usize = 64 << 10;
/// Lanes of short publications.
const LANES_OF_LINES: u32 = 8;
/// Most lanes of long publications of ranks that share a GPU.
const MOST_LANES: u32 = 66;
/// Most lanes of long publications between GPUs, whose links are slower than their memory. Blocks that
/// wait for other ranks are taken from the user's kernels.
const MOST_LANES_BETWEEN_GPUS: u32 = 32;
/// Bytes of a long publication, which lanes share: fewer, and counters cost more than bytes.
const LONGEST: usize = 8 << 20;
/// Most messages that a rank has at a time, most lanes of one, and bytes that a lane moves between two
/// counters. A rank of a small group has few messages, so each gets many lanes.
const MOST_MESSAGES_AT_ONCE: u32 = 8;
const LANES_OF_MESSAGES: u32 = 16;
const MESSAGE_BYTES: usize = 64 << 10;
/// Slots of long publications.
const SLOTS: u32 = 4;
/// Slots of short publications: some algorithms make many in a row.
const SLOTS_OF_LINES: u32 = 16;

/// A message between two kernels, and a KiB of [units](CallPrices::unit) that one of them moves, on an
/// H100 that ranks share: measured by `tests/gpu/speed.rs`. Lines and slots have equal costs at the
/// lengths that they are used for.
const MESSAGE: Costs = Costs { alpha: 3_000_000, beta: 1_000, gamma: 0 };
/// One through memory of the host: assumed, at 20 GB/s.
const MESSAGE_IN_HOST: Costs = Costs { alpha: 6_000_000, beta: 50_000, gamma: 0 };

/// Fixed nanoseconds of a call, without its messages: 8 bytes between two ranks take 9.3 us on that
/// GPU, of which a message takes 3. All candidates take them, so they do not choose.
pub(super) const LAUNCH_NS: u64 = 6_300;

/// Where [`MESSAGE`] and [`LAUNCH_NS`] were measured.
const MEASURED: &str =
    "calls, messages and memory as measured on one H100 that ranks shared (23 November 2026)";
const ASSUMED: &str = "messages through memory of the host at 6 us and 20 GB/s, which is assumed and \
                       was not measured";

/// The costs of calls on GPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPrices {
    pub(super) costs: CostTable,
    /// The bytes that `costs` counts as one: a slot is so many times as long as one of a board.
    pub(super) unit: usize,
    /// The source of the costs.
    pub(super) source: &'static str,
}

impl CallPrices {
    /// Those of mailboxes that are there.
    pub(super) fn of(place: MailboxPlace) -> Self {
        let (message, source) = match place {
            MailboxPlace::Gpus => (MESSAGE, MEASURED),
            MailboxPlace::Host => (MESSAGE_IN_HOST, ASSUMED),
        };
        let unit = limits(place).2 / CHUNK;
        let message = Costs { beta: message.beta * unit as u64, ..message };
        let costs =
            CostTable { tiny: message, small: message, chunk: message, ..CostTable::BUILT_IN };
        Self { costs, unit, source }
    }
}

/// The lanes of each rank of a group whose ranks have these GPUs; at most as many as are `wanted`. `None` if
/// some rank gets none.
///
/// Every block of every rank must run at the same time, also together with those of other groups. A
/// multiprocessor has room for one block of each kernel (`KERNEL` in `machine.h`). The first group
/// of a GPU leaves a quarter to later groups, and each of these takes a quarter of the rest:
/// programs have one large group and many small ones.
pub(super) fn lanes(gpus: &[RankGpu], wanted: u32) -> Option<u32> {
    let crowd = |uuid| gpus.iter().filter(|other| other.uuid == uuid).count() as u32;
    let share = gpus.iter().map(|gpu| gpu.free / crowd(gpu.uuid)).min().filter(|it| *it > 0)?;
    let is_shared = gpus.iter().any(|gpu| crowd(gpu.uuid) > 1);
    let is_first = gpus.iter().all(|gpu| gpu.free == gpu.processors);
    let most = if is_shared { MOST_LANES } else { MOST_LANES_BETWEEN_GPUS };
    let lanes = if is_first { share - share.div_ceil(4) } else { share / 4 };
    Some(lanes.clamp(1, most.min(wanted)))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RankGpu {
    pub(super) uuid: [u8; 16],
    pub(super) processors: u32,
    /// Multiprocessors that no other group has reserved.
    pub(super) free: u32,
}

/// Most lanes of a rank there, and bytes of the longest publications in lines and in slots. In the host
/// the memory is pinned, PCIe is slow, and looks for lines cross it twice.
fn limits(place: MailboxPlace) -> (u32, usize, usize) {
    match place {
        MailboxPlace::Gpus => (u32::MAX, LONGEST_LINES, LONGEST),
        MailboxPlace::Host => (8, 16 << 10, 2 << 20),
    }
}

/// How many of `lanes` lanes a rank has there.
pub(super) fn lanes_at(place: MailboxPlace, lanes: u32) -> u32 {
    lanes.min(limits(place).0)
}

/// The mailboxes of `world` ranks that have `lanes` lanes each.
pub(super) fn shapes(place: MailboxPlace, lanes: u32, world: usize) -> Shapes {
    let (_, longest_lines, longest) = limits(place);
    let lines = Shape {
        protocol: Protocol::LowLatency,
        lanes: lanes.min(LANES_OF_LINES),
        slots: SLOTS_OF_LINES,
        bytes: longest_lines,
    };
    let long = Shape { protocol: Protocol::Simple, lanes, slots: SLOTS, bytes: longest };
    // One to each other rank and one from it.
    let wanted = (2 * (world as u32).saturating_sub(1)).clamp(2, MOST_MESSAGES_AT_ONCE);
    let of_message = (lanes / wanted).clamp(1, LANES_OF_MESSAGES);
    let messages = Shape { lanes: of_message, bytes: MESSAGE_BYTES * of_message as usize, ..long };
    let messages_at_once = ((lanes / of_message) as usize).clamp(1, MOST_LAUNCHES);
    Shapes { groups: vec![lines, long], messages, messages_at_once }
}

/// The mailboxes of a call whose longest chunk has `longest` bytes, and the slots that it is
/// lowered for.
pub(super) fn room(shapes: &Shapes, longest: usize) -> (Room, DeviceSlots) {
    let fits = |shape: &&Shape| longest <= shape.bytes;
    let last = shapes.groups.len() - 1;
    let index = shapes.groups.iter().position(|shape| fits(&shape)).unwrap_or(last);
    let shape = &shapes.groups[index];
    (Room::Group(index), DeviceSlots { bytes: shape.bytes, count: shape.slots as usize })
}

/// The mailboxes whose publications are counted, and their capacity.
pub(super) fn counted_room(shapes: &Shapes) -> (Room, DeviceSlots) {
    room(shapes, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::tuner::{Question, plan};

    /// One hop while bytes are few; every byte once when they are many.
    #[test]
    fn short_vectors_go_in_one_hop_and_long_ones_in_few_bytes() {
        let prices = CallPrices::of(MailboxPlace::Gpus);
        for world in [2, 4, 8] {
            let boards = Boards::new(&vec![0; world]);
            let chosen = |bytes| {
                let collective = Collective::AllReduce;
                let bytes = usize::div_ceil(bytes, prices.unit);
                let question =
                    Question { collective, boards: &boards, bytes, crowding: 1, gpus: None };
                plan(&question, None, &prices.costs).unwrap().algorithm
            };
            assert_eq!(chosen(8), Algorithm::OneShot);
            assert_eq!(chosen(256 << 10), Algorithm::OneShot);
            assert_ne!(chosen(128 << 20), Algorithm::OneShot, "{world} ranks");
        }
    }

    #[test]
    fn the_blocks_of_a_rank_are_as_many_as_it_has_lanes() {
        for (lanes, world) in [(1, 2), (2, 2), (7, 3), (12, 8), (32, 64), (49, 2), (66, 4)] {
            let shapes = shapes(MailboxPlace::Gpus, lanes, world);
            for shape in shapes.groups.iter().chain([&shapes.messages]) {
                assert!(shape.lanes >= 1 && shape.slots.is_power_of_two());
                assert!(shape.lanes <= lanes);
            }
            assert!(shapes.messages.lanes * shapes.messages_at_once as u32 <= lanes);
        }
    }

    /// Groups that are made one after the other, by `crowd` ranks on one GPU.
    #[test]
    fn all_groups_of_a_gpu_run_at_once() {
        for (crowd, processors) in [(1, 132), (2, 132), (8, 132), (8, 16), (4, 2), (1, 1)] {
            let (mut free, mut groups) = (processors, 0);
            let gpu = |free| RankGpu { uuid: [7; 16], processors, free };
            while let Some(lanes) = lanes(&vec![gpu(free); crowd as usize], 24) {
                free = free.checked_sub(lanes * crowd).expect("their blocks fit");
                groups += 1;
            }
            assert!(free < crowd, "all are used in the end");
            println!("{crowd} ranks on {processors} multiprocessors: {groups} groups");
            assert!(groups >= 10 || processors / crowd < 66, "{groups} groups");
        }
    }

    #[test]
    fn the_rank_with_the_fullest_gpu_decides() {
        let gpu = |name: u8, free| RankGpu { uuid: [name; 16], processors: 132, free };
        let any = |gpus: &[_]| lanes(gpus, u32::MAX);
        assert_eq!(any(&[gpu(1, 132), gpu(2, 132)]), Some(32));
        assert_eq!(any(&[gpu(1, 132), gpu(2, 4)]), Some(1));
        assert_eq!(any(&[gpu(1, 132), gpu(1, 132)]), Some(49));
        assert_eq!(lanes(&[gpu(1, 132), gpu(1, 132)], 24), Some(24));
        assert_eq!(any(&[gpu(1, 132), gpu(2, 0)]), None);
        assert_eq!(any(&[gpu(1, 1), gpu(1, 1)]), None);
    }
}
