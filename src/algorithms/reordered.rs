//! The same algorithm among ranks in another order, and several of them side by side.
//!
//! Algorithms put ranks in a row: a ring goes from each to the next number. The best order depends
//! on the links between the ranks, which no algorithm depends on. An *order* assigns a rank to each
//! place: rank `order[p]` stands at place `p`. This rank runs the schedule of place `p`, with
//! places replaced by their ranks. Where a block belongs to a rank, blocks are renamed likewise.
//!
//! *Lanes* are concurrent orders, each for an equal slice of the vector, so that several rings over
//! different links share the work.
//!
//! **Cost**: that of the algorithm; with lanes, that of the slowest lane with its slice.
//!
//! **Why**: an order that follows the topology crosses slow links as seldom as possible.

use super::compose::{Composer, SubSchedule, WholeBuffer};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step};

/// The schedule of `rank` if ranks stand in `order`, and `make` gives the schedule of a place: the
/// schedule of an [`Algorithm`](super::Algorithm), or a [`hierarchical`](super::hierarchical) one
/// over hosts by place.
///
/// `None` if `make` gives none. Also `None` for a scan in any order but that of the ranks, which
/// decides its result.
///
/// ```
/// use maypole::algorithms::{Algorithm, reordered};
/// use maypole::{schedule::collective::Collective, schedule::Placement, schedule::verify::verify};
/// let order = [0, 2, 3, 1];
/// let ring = |collective, place| Algorithm::Ring.schedule(collective, 4, place);
/// let of = |rank| reordered::schedule(Collective::AllGather, &order, rank, ring).unwrap();
/// assert!(verify(Collective::AllGather, &[of(0), of(1), of(2), of(3)], Placement::Apart).is_ok());
/// ```
///
/// # Panics
/// If `order` does not hold `rank`, the collective's root and every rank once.
pub fn schedule(
    collective: Collective,
    order: &[usize],
    rank: usize,
    make: impl Fn(Collective, usize) -> Option<Schedule>,
) -> Option<Schedule> {
    let schedule = placed(collective, order, rank, make)?;
    let chunk = |chunk: usize| if collective.is_blocked() { order[chunk] } else { chunk };
    let span = |span: Span| {
        let row = span.chunk / schedule.chunks;
        let inner = span.chunk % schedule.chunks;
        Span { chunk: row * schedule.chunks + chunk(inner), ..span }
    };
    let steps = schedule.steps.iter().map(|&step| match step {
        Step::Send { from, to } => Step::Send { from: span(from), to: order[to] },
        Step::Recv { into, from } => Step::Recv { into: span(into), from: order[from] },
        Step::RecvReduce { into, from } => Step::RecvReduce { into: span(into), from: order[from] },
        Step::Copy { from, into } => Step::Copy { from: span(from), into: span(into) },
        Step::Reduce { from, into } => Step::Reduce { from: span(from), into: span(into) },
    });
    Some(Schedule::new(schedule.chunks, steps.collect()))
}

/// The schedule of `rank`'s place.
fn placed(
    collective: Collective,
    order: &[usize],
    rank: usize,
    make: impl Fn(Collective, usize) -> Option<Schedule>,
) -> Option<Schedule> {
    let place = |rank: usize| {
        order.iter().position(|&other| other == rank).expect("every rank stands somewhere")
    };
    let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
    if scans && !order.is_sorted() {
        return None;
    }
    let there = collective.root().map_or(collective, |root| collective.with_root(place(root)));
    make(there, place(rank))
}

/// The schedule of `rank` if the vector is cut into one slice for each of `orders`, and `make` is
/// done on each slice in that order. `None` if `make` gives none, or if there are several orders
/// and the collective's blocks cannot be cut.
///
/// The lanes follow one another in the list. They have no span in common, so executors run them
/// side by side.
///
/// # Panics
/// As [`schedule`], or if there is no order.
pub fn lanes(
    collective: Collective,
    orders: &[Vec<usize>],
    rank: usize,
    make: impl Fn(Collective, usize) -> Option<Schedule>,
) -> Option<Schedule> {
    if let [order] = orders {
        return schedule(collective, order, rank, make);
    }
    if !matches!(
        collective,
        Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. }
    ) {
        return None;
    }
    let parts: Vec<Schedule> =
        orders.iter().map(|order| placed(collective, order, rank, &make)).collect::<Option<_>>()?;
    let pieces = parts[0].chunks;
    let mut whole = Composer::new(orders.len() * pieces);
    for (lane, (schedule, ranks)) in parts.iter().zip(orders).enumerate() {
        let chunks: Vec<_> =
            (lane * pieces..(lane + 1) * pieces).map(|chunk| vec![chunk]).collect();
        whole.then(&SubSchedule {
            schedule,
            ranks,
            chunks: &chunks,
            input: WholeBuffer::Input,
            output: WholeBuffer::Output,
        });
    }
    Some(whole.end())
}

#[cfg(test)]
mod tests {
    use super::super::Algorithm;
    use super::*;
    use crate::schedule::scratch;

    #[test]
    fn buffers_keep_their_rows() {
        let order = [1, 0];
        let make =
            |_, _| Some(Schedule::new(2, vec![Step::Copy { from: scratch(3), into: scratch(0) }]));
        let schedule = schedule(Collective::AllGather, &order, 0, make).expect("there is one");
        assert_eq!(schedule.steps, [Step::Copy { from: scratch(2), into: scratch(1) }]);
    }

    #[test]
    fn what_depends_on_the_order_of_ranks_keeps_it() {
        let ring = |collective, place| Algorithm::Ring.schedule(collective, 3, place);
        assert_eq!(schedule(Collective::Scan, &[0, 2, 1], 0, ring), None);
        assert_eq!(schedule(Collective::Scan, &[0, 1, 2], 1, ring), ring(Collective::Scan, 1));
        assert_eq!(lanes(Collective::AllGather, &[vec![0, 1, 2], vec![0, 2, 1]], 0, ring), None);
    }
}
