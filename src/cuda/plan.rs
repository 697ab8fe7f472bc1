//! The mailboxes and windows of a call on GPUs, and the costs of its messages and bytes.

use super::place::MailboxPlace;
use crate::lower::DeviceSlots;
use crate::topology::DeviceLinks;
use crate::tuner::{CostTable, Costs};
use maypole_kernels::packed::MOST_SHORT_BYTES;
use maypole_transports::board::CHUNK;
use maypole_transports::cuda::{Protocol, Room, Shape, Shapes};

/// Publications up to this go in lines, among few ranks and over fast links: twice the bytes, but no wait for a counter.
pub(super) const LONGEST_LINES: usize = MOST_SHORT_BYTES as usize;
/// Bytes of lines for which one more lane pays: each thread reads one, so that all are under way at a time.
const LANE_OF_LINES: usize = 4 << 10;
/// Nanoseconds by which a message with a counter takes longer than one in lines: the fence, and the counter. NCCL's
/// tuner has 3.4 us and 0.6 us for a hop of a ring over NVLink; on an H100 the first took 3 us.
const COUNTER_NS: u64 = 2_800;
/// MB/s of a link that is not known: NVLink of an H100. Memory that ranks share is no slower.
const UNKNOWN_LINK: u64 = 450_000;
/// Bytes of a slot for which one more lane pays: it costs as much as it moves within a microsecond.
const LANE: usize = 8 << 10;
/// Lanes of ranks that share a GPU, of all together. On an H200 an all-reduce of 128 MiB by two ranks has
/// 0.85 of the speed of NVIDIA's library with 24 lanes each, 0.98 with 32, and 1.11 with 48 or 64.
const LANES_OF_MEMORY: u32 = 96;
/// Bytes that a lane has under way: four loads of sixteen bytes by each thread that moves.
const UNDER_WAY: u64 = 4 * 16 * 480;
/// How long a load from another GPU takes under load, in nanoseconds. 32 lanes cover it for the
/// 450 GB/s of an H100 by NVLink.
const LOAD_NS: u64 = 2_180;
/// The least for a link, however slow.
const LEAST_OF_LINKS: u64 = 8;
/// Bytes of a long publication, which lanes share: fewer, and counters cost more than bytes.
const LONGEST: usize = 8 << 20;
/// Bytes that a lane of a message moves between two counters.
const PIECE: usize = UNDER_WAY as usize;
/// Bytes of the slots of all messages of a rank: fewer lanes in a large group.
const MEMORY_OF_MESSAGES: usize = 24 << 20;
/// Windows of a long chunk, at least, if they are not too short.
const WINDOWS: usize = 8;
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
/// GPU, of which a message takes 3. All candidates take them, so they decide only which are near.
pub(super) const LAUNCH_NS: u64 = 6_300;

/// Where [`MESSAGE`] and [`LAUNCH_NS`] were measured.
const MEASURED: &str =
    "calls, messages and memory as measured on one H100 that ranks shared (23 November 2026)";
const ASSUMED: &str = "messages through memory of the host at 6 us and 20 GB/s, which is assumed and \
                       was not measured";
const ASSUMED_BETWEEN: &str = "messages through memory of a host at 6 us and 20 GB/s, which is assumed and \
                               was not measured; between hosts two of these and one of a stream";

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
    /// Those of mailboxes that are there, between whose hosts streams have these costs. A message to another host
    /// goes through memory of both hosts, and over the stream of the ranks' couriers. No stream combines.
    pub(super) fn of(place: MailboxPlace, streams: &CostTable) -> Self {
        let (message, source) = match place {
            MailboxPlace::Gpus => (MESSAGE, MEASURED),
            MailboxPlace::Host => (MESSAGE_IN_HOST, ASSUMED),
            MailboxPlace::Hosts => (MESSAGE_IN_HOST, ASSUMED_BETWEEN),
        };
        let unit = limits(place).2 / CHUNK;
        let of_units = |costs: Costs| Costs { beta: costs.beta * unit as u64, ..costs };
        let to_host = |stream: Costs| Costs {
            alpha: stream.alpha + 2 * message.alpha,
            beta: stream.beta + 2 * message.beta,
            gamma: 0,
        };
        let [tcp, verbs] = [streams.tcp, streams.verbs].map(|stream| of_units(to_host(stream)));
        let message = of_units(message);
        let (tiny, small, chunk, network) = (message, message, message, streams.network);
        let costs = CostTable { tiny, small, chunk, tcp, verbs, network, ..CostTable::BUILT_IN };
        Self { costs, unit, source }
    }
}

/// What the program allows: at least and at most so many lanes of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) least: u32,
    pub(super) most: u32,
}

/// The lanes of a long call of each rank of a group whose ranks have these GPUs: as many as keep memory
/// and links busy, and no more than are `wanted`. `None` if some rank gets none.
///
/// Every block of every rank must run at the same time, also together with those of other groups:
/// as many as the driver says that the GPU has room for. The first group of a GPU leaves a quarter to later
/// groups, and each of these takes a quarter of the rest: programs have one large group and many
/// small ones.
pub(super) fn lanes(gpus: &[RankGpu], links: &DeviceLinks, wanted: Wanted) -> Option<u32> {
    let crowd = |uuid| gpus.iter().filter(|other| other.uuid == uuid).count() as u32;
    let share = gpus.iter().map(|gpu| gpu.free / crowd(gpu.uuid)).min().filter(|it| *it > 0)?;
    let is_first = gpus.iter().all(|gpu| gpu.free == gpu.places);
    let lanes = if is_first { share - share.div_ceil(4) } else { share / 4 };
    let most = needed(links).max(wanted.least).min(wanted.most);
    Some(lanes.clamp(1, most.max(1)))
}

/// The lanes that keep the memory that ranks share, and the fastest link between two of them, busy.
fn needed(links: &DeviceLinks) -> u32 {
    let crowd = (0..links.world()).map(|rank| links.sharing(rank) as u32).max().unwrap_or(1);
    let memory = if crowd > 1 { LANES_OF_MEMORY / crowd } else { 1 };
    let covering = |rate: u64| (rate * LOAD_NS / 1000).div_ceil(UNDER_WAY).max(LEAST_OF_LINKS);
    rates(links).map(covering).max().unwrap_or(1).max(memory.into()) as u32
}

/// MB/s between each two ranks on different GPUs.
fn rates(links: &DeviceLinks) -> impl Iterator<Item = u64> + '_ {
    let pairs = (0..links.world()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let apart = pairs.filter(|(a, b)| links.gpus()[*a] != links.gpus()[*b]);
    let known = |(a, b)| links.between(a, b).filter(|path| path.megabytes > 0);
    apart.map(move |pair| known(pair).map_or(UNKNOWN_LINK, |path| path.megabytes))
}

/// Bytes of the longest publication in lines. A rank that reads one of each other rank fetches as many bytes of
/// flags as of data, which must not take longer than a counter.
pub(super) fn longest_lines(links: &DeviceLinks) -> usize {
    let rate = rates(links).min().unwrap_or(UNKNOWN_LINK);
    let bytes = (rate * COUNTER_NS / 1000) as usize / (links.world() - 1).max(1);
    (bytes / LANE_OF_LINES * LANE_OF_LINES).clamp(LANE_OF_LINES, LONGEST_LINES)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RankGpu {
    pub(super) uuid: [u8; 16],
    /// Blocks that run on it at the same time.
    pub(super) places: u32,
    /// Those of them that no other group has reserved.
    pub(super) free: u32,
}

/// Most lanes of a rank there, and bytes of the longest publications in lines and in slots. In the host
/// the memory is pinned, PCIe is slow, and looks for lines cross it twice.
pub(super) fn limits(place: MailboxPlace) -> (u32, usize, usize) {
    match place {
        MailboxPlace::Gpus => (u32::MAX, LONGEST_LINES, LONGEST),
        MailboxPlace::Host | MailboxPlace::Hosts => (8, 16 << 10, 2 << 20),
    }
}

/// The mailboxes of ranks with these links that have up to `lanes` lanes in a call, and at least `least`.
pub(super) fn shapes(place: MailboxPlace, lanes: u32, least: u32, links: &DeviceLinks) -> Shapes {
    let (_, most_lines, longest) = limits(place);
    let longest_lines = longest_lines(links).min(most_lines);
    let least = least.min(lanes);
    // No counter says that lines have arrived, so couriers cannot carry them.
    let of_lines = match place {
        MailboxPlace::Hosts => Protocol::Simple,
        _ => Protocol::LowLatency,
    };
    let lines = Shape {
        protocol: of_lines,
        lanes: lanes.min((longest_lines / LANE_OF_LINES) as u32),
        slots: SLOTS_OF_LINES,
        bytes: longest_lines,
        lane_bytes: LANE_OF_LINES,
        least,
    };
    let (slots, protocol) = (SLOTS, Protocol::Simple);
    let long = Shape { protocol, lanes, slots, bytes: longest, lane_bytes: LANE, least };
    let fitting = MEMORY_OF_MESSAGES / (links.world() * slots as usize * PIECE);
    let of_message = lanes.min(fitting.max(1) as u32);
    let messages = Shape { lanes: of_message, bytes: PIECE * of_message as usize, ..long };
    Shapes { groups: vec![lines, long], messages, slots_on_gpus: false }
}

/// The mailboxes of a call whose longest chunk has `longest` bytes, and the slots that it is
/// lowered for. Publications of the longest chunks are counted.
pub(super) fn room(shapes: &Shapes, longest: usize) -> (Room, DeviceSlots) {
    let fits = |shape: &&Shape| longest <= shape.bytes;
    let last = shapes.groups.len() - 1;
    let index = shapes.groups.iter().position(|shape| fits(&shape)).unwrap_or(last);
    let shape = &shapes.groups[index];
    (Room::Group(index), DeviceSlots { bytes: shape.bytes, count: shape.slots as usize })
}

/// Bytes of a window of a call over such mailboxes whose longest chunk has `longest` bytes. Several follow one
/// another, so that a rank reads one while the next is written, but each lane has two loads of one.
pub(super) fn window(shape: &Shape, longest: usize) -> usize {
    let least = (2 * PIECE * shape.lanes as usize).min(shape.bytes);
    (longest / WINDOWS).next_multiple_of(16).clamp(least, shape.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::lower::{Fold, FoldSource, LoweringInput, SourceLocation, lower_for_device};
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::schedule::{Layout, Placement};
    use crate::topology::{LinkKind, NodeKind, Topology};
    use crate::tuner::{Question, plan};

    #[test]
    fn a_message_to_another_host_costs_more_than_the_message_of_its_stream() {
        let streams = CostTable::BUILT_IN;
        let prices = CallPrices::of(MailboxPlace::Hosts, &streams).costs;
        for (ours, stream) in [(prices.tcp, streams.tcp), (prices.verbs, streams.verbs)] {
            assert_eq!(ours.alpha, stream.alpha + 2 * MESSAGE_IN_HOST.alpha);
        }
        assert!(prices.verbs.alpha < prices.tcp.alpha);
    }

    /// One hop while bytes are few; every byte once when they are many.
    #[test]
    fn short_vectors_go_in_one_hop_and_long_ones_in_few_bytes() {
        let prices = CallPrices::of(MailboxPlace::Gpus, &CostTable::BUILT_IN);
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
            let shapes = shapes(MailboxPlace::Gpus, lanes, 1, &sharing_one(world));
            for shape in shapes.groups.iter().chain([&shapes.messages]) {
                assert!(shape.lanes >= 1 && shape.slots.is_power_of_two());
                assert!(shape.lanes <= lanes);
                let piece = shape.bytes / shape.lanes as usize;
                assert!(shape.lane_bytes <= piece.next_multiple_of(16), "{shape:?}");
            }
            let slots = world * shapes.messages.slots as usize * shapes.messages.bytes;
            assert!(slots <= MEMORY_OF_MESSAGES, "{slots} bytes");
        }
    }

    fn sharing_one(world: usize) -> DeviceLinks {
        DeviceLinks::unknown(&vec![0; world])
    }

    const ANY: Wanted = Wanted { least: 1, most: u32::MAX };

    fn most(most: u32) -> Wanted {
        Wanted { most, ..ANY }
    }

    /// `crowd` ranks on one GPU of so many places.
    fn sharing(crowd: usize, places: u32, wanted: Wanted) -> Option<u32> {
        let gpu = RankGpu { uuid: [7; 16], places, free: places };
        lanes(&vec![gpu; crowd], &sharing_one(crowd), wanted)
    }

    /// On an H200 with 132 multiprocessors two ranks have the 48 lanes that its memory needs; more ranks have
    /// what is there.
    #[test]
    fn a_call_has_as_many_lanes_as_its_bytes_and_its_gpu_pay_for() {
        assert_eq!([2, 4, 8].map(|crowd| sharing(crowd, 132, ANY)), [48, 24, 12].map(Some));
        assert_eq!([2, 4, 8].map(|crowd| sharing(crowd, 264, ANY)), [48, 24, 12].map(Some));
        let shapes = shapes(MailboxPlace::Gpus, 48, 1, &sharing_one(2));
        let lanes = |bytes| {
            let shape = shapes.of(room(&shapes, bytes).0);
            (shape.lanes_of(bytes as u64), shapes.messages.lanes_of(bytes as u64))
        };
        assert_eq!([8, 4 << 10].map(lanes), [(1, 1), (1, 1)]);
        assert_eq!([32 << 10, 64 << 10].map(lanes), [(8, 4), (16, 8)]);
        assert_eq!([128 << 10, 16 << 20].map(lanes), [(16, 16), (48, 48)]);
        let window = |longest| window(shapes.of(room(&shapes, longest).0), longest);
        assert_eq!([8, 64 << 10].map(window), [LONGEST_LINES; 2]);
        assert_eq!([1 << 20, 16 << 20].map(window), [48 * 2 * PIECE; 2]);
        assert_eq!([32 << 20, 1 << 30].map(window), [4 << 20, LONGEST]);
    }

    /// The links of so many GPUs of a switch.
    fn switched(world: usize, kind: LinkKind, bandwidth: f64) -> DeviceLinks {
        let mut host = Topology::new();
        let switch = host.add(NodeKind::GpuSwitch, Some(0), "switch");
        for rank in 0..world {
            let gpu = host.add(NodeKind::Gpu, Some(0), format!("GPU{rank}"));
            host.join(gpu, switch, kind, bandwidth);
        }
        DeviceLinks::new(&host, &(0..world).collect::<Vec<_>>()).unwrap()
    }

    /// Bytes that a rank reads of others in a one-shot all-reduce of `bytes` bytes, by its program.
    fn read_of_others(world: usize, bytes: usize) -> usize {
        let collective = Collective::AllReduce;
        let schedules = Algorithm::OneShot.schedules(collective, world).unwrap();
        let request = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &Layout::even(bytes / 4, schedules[0].chunks),
            element: 4,
            boards: &Boards::new(&vec![0; world]),
            window: usize::MAX,
            fingerprint: 1,
        };
        let slots = DeviceSlots { bytes, count: 16 };
        let program = lower_for_device(&request, slots, 0, Placement::Apart).unwrap();
        let is_read = |it: &&FoldSource| it.from == SourceLocation::Board;
        let of_fold = |fold: &Fold| {
            let sources = &program.sources[fold.first as usize..][..usize::from(fold.count)];
            sources.iter().filter(is_read).count() * fold.extent.window(0).1
        };
        program.folds.iter().map(of_fold).sum()
    }

    /// Around the limit the flags of a call take as long as a counter, or lines have no more lanes.
    #[test]
    fn lines_end_where_their_flags_take_longer_than_a_counter() {
        let mut limits = Vec::new();
        for (kind, rate) in [(LinkKind::NvLink(18), 450.0), (LinkKind::Pci, 25.0)] {
            for world in [2, 4, 8, 16] {
                let limit = longest_lines(&switched(world, kind, rate));
                let flags_ns = |bytes| (read_of_others(world, bytes) as f64 / rate) as u64;
                let longer = limit + LANE_OF_LINES;
                println!(
                    "{world} ranks at {rate} GB/s: {limit} bytes, {} ns of flags; {} ns of {longer} \
                     bytes",
                    flags_ns(limit),
                    flags_ns(longer)
                );
                assert!(flags_ns(limit) <= COUNTER_NS || limit == LANE_OF_LINES);
                assert!(flags_ns(longer) > COUNTER_NS || limit == LONGEST_LINES);
                limits.push(limit >> 10);
            }
        }
        assert_eq!(limits, [64, 64, 64, 64, 64, 20, 8, 4]);
        assert_eq!(longest_lines(&DeviceLinks::unknown(&[0; 8])), LONGEST_LINES);
    }

    #[test]
    fn links_have_the_lanes_that_keep_them_busy() {
        let of = |kind, bandwidth| needed(&switched(2, kind, bandwidth));
        assert_eq!(of(LinkKind::NvLink(18), 450.0), 32);
        assert_eq!(of(LinkKind::NvLink(18), 900.0), 64);
        assert_eq!(of(LinkKind::Pci, 25.0), 8);
        assert_eq!(needed(&DeviceLinks::apart(2)), 32);
        assert_eq!(needed(&DeviceLinks::unknown(&[0, 0, 1, 1])), 48);
    }

    #[test]
    fn a_program_bounds_the_lanes() {
        assert_eq!(sharing(2, 132, most(24)), Some(24));
        assert_eq!(sharing(2, 132, Wanted { least: 49, most: 64 }), Some(49));
        assert_eq!(sharing(2, 132, Wanted { least: 60, ..ANY }), Some(49), "no more have room");
        let few = shapes(MailboxPlace::Gpus, 16, 4, &sharing_one(2));
        assert_eq!((few.messages.lanes_of(8), few.groups[0].lanes_of(8)), (4, 4));
        let fewest = shapes(MailboxPlace::Gpus, 2, 4, &sharing_one(2));
        assert_eq!(fewest.messages.lanes_of(8), 2);
    }

    /// Groups that are made one after the other, by `crowd` ranks on one GPU.
    #[test]
    fn all_groups_of_a_gpu_run_at_once() {
        for (crowd, places) in [(1, 132), (2, 132), (8, 132), (8, 16), (4, 2), (1, 1), (8, 4)] {
            let (mut free, mut groups) = (places, 0);
            let links = DeviceLinks::unknown(&vec![0; crowd as usize]);
            let gpu = |free| RankGpu { uuid: [7; 16], places, free };
            while let Some(lanes) = lanes(&vec![gpu(free); crowd as usize], &links, ANY) {
                free = free.checked_sub(lanes * crowd).expect("their blocks fit");
                groups += 1;
            }
            assert!(free < crowd, "all are used in the end");
            println!("{crowd} ranks on {places} places: {groups} groups");
            assert!(groups >= 10 || places / crowd < 66, "{groups} groups");
        }
    }

    #[test]
    fn the_rank_with_the_fullest_gpu_decides() {
        let gpu = |name: u8, free| RankGpu { uuid: [name; 16], places: 132, free };
        let any = |gpus: &[_]| lanes(gpus, &DeviceLinks::apart(2), ANY);
        assert_eq!(any(&[gpu(1, 132), gpu(2, 132)]), Some(32));
        assert_eq!(any(&[gpu(1, 132), gpu(2, 4)]), Some(1));
        assert_eq!(any(&[gpu(1, 132), gpu(2, 0)]), None);
        assert_eq!(any(&[gpu(1, 1), gpu(1, 1)]), None);
    }
}
