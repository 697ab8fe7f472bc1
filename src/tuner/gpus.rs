//! Inputs of a choice on GPUs: the links between them, and which ranks share one.

use crate::algorithms::{Algorithm, reordered};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::simulate::MemoryRates;
use crate::schedule::{Schedule, Step};
use crate::topology::DeviceLinks;

/// The GPUs of the ranks of a question.
#[derive(Clone, Copy, Debug)]
pub struct DeviceQuestion<'a> {
    /// The links of the GPUs. Their ranks are of one board.
    pub links: &'a DeviceLinks,
    /// The bytes that the question and the table count as one.
    pub unit: usize,
    /// Nanoseconds of a call without its messages. All candidates take them, so prices that differ by less
    /// than a part of them are near.
    pub start_ns: u64,
}

/// The schedules of all ranks on `boards`; on GPUs that `links` join, ranks stand in a ring in the
/// order of the links. `None` if `algorithm` does not implement `collective`.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::{Step, collective::Collective, hosts::Boards};
/// use maypole::topology::DeviceLinks;
/// // Ranks 0 and 2 share a GPU, and so do ranks 1 and 3.
/// let links = DeviceLinks::unknown(&[0, 1, 0, 1]);
/// let boards = Boards::new(&[0; 4]);
/// let ring = maypole::tuner::schedules(
///     Algorithm::Ring, Collective::AllReduce, &boards, Some(&links)).unwrap();
/// assert!(ring[1].steps.iter().all(|step| !matches!(step, Step::Send { to: 0 | 2, .. })));
/// ```
pub fn schedules(
    algorithm: Algorithm,
    collective: Collective,
    boards: &Boards,
    links: Option<&DeviceLinks>,
) -> Option<Vec<Schedule>> {
    let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
    let order = links.map(DeviceLinks::order).filter(|order| !order.is_sorted());
    let Some(order) = order.filter(|_| algorithm == Algorithm::Ring && !scans) else {
        return algorithm.schedules_on(collective, boards.numbers());
    };
    let world = boards.world();
    let at = |collective, place| algorithm.schedule(collective, world, place);
    (0..world).map(|rank| reordered::schedule(collective, order, rank, at)).collect()
}

/// Picoseconds a KiB of a link that moves a MB a second.
const OF_MEGABYTE: u64 = 1_024_000_000;

/// The rates at which ranks access the memories of GPUs, where `unit` bytes count as one.
pub(super) fn memories(links: &DeviceLinks, unit: usize) -> MemoryRates {
    let ranks = 0..links.world();
    let least = |from: usize, to: usize| match links.between(from, to) {
        Some(path) if path.megabytes > 0 => {
            OF_MEGABYTE.saturating_mul(unit as u64) / path.megabytes
        }
        // Their own memory is the limit, or no narrower link was found.
        _ => 0,
    };
    let row = |from: usize| ranks.clone().map(|to| least(from, to)).collect();
    MemoryRates {
        sharing: ranks.clone().map(|rank| links.sharing(rank) as u64).collect(),
        least: ranks.clone().map(row).collect(),
    }
}

/// Picoseconds that the busiest link between GPUs takes for a KiB of every chunk of `schedules`, where
/// `unit` bytes count as one: no order of the messages is faster.
pub(super) fn busiest(schedules: &[Schedule], links: &DeviceLinks, unit: usize) -> u64 {
    let sent = |(from, schedule): (usize, &Schedule)| {
        let to = schedule.steps.iter().filter_map(|step| match step {
            Step::Send { to, .. } => Some(*to),
            _ => None,
        });
        to.map(move |to| (from, to)).collect::<Vec<_>>()
    };
    let reads = schedules.iter().enumerate().flat_map(sent);
    links.busiest(reads, OF_MEGABYTE.saturating_mul(unit as u64))
}
