//! The same algorithm among ranks in another order.
//!
//! Algorithms put ranks in a row: a ring goes from each to the next number. The best order depends
//! on the links between the ranks, which no algorithm depends on. An *order* assigns a rank to each
//! place: rank `order[p]` stands at place `p`. This rank runs the schedule of place `p`, with
//! places replaced by their ranks. Where a block belongs to a rank, blocks are renamed likewise.
//!
//! **Cost**: that of the algorithm.
//!
//! **Why**: an order that follows the topology crosses slow links as seldom as possible.

use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span};

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
    let place = |rank: usize| {
        order.iter().position(|&other| other == rank).expect("every rank stands somewhere")
    };
    let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
    if scans && !order.is_sorted() {
        return None;
    }
    let there = collective.root().map_or(collective, |root| collective.with_root(place(root)));
    let schedule = make(there, place(rank))?;
    let chunk = |chunk: usize| if collective.is_blocked() { order[chunk] } else { chunk };
    let span = |span: Span| {
        let row = span.chunk / schedule.chunks;
        let inner = span.chunk % schedule.chunks;
        Span { chunk: row * schedule.chunks + chunk(inner), ..span }
    };
    let steps = schedule.steps.iter().map(|step| step.map(span, |place| order[place]));
    Some(Schedule::new(schedule.chunks, steps.collect()))
}

#[cfg(test)]
mod tests {
    use super::super::Algorithm;
    use super::*;
    use crate::schedule::{Step, scratch};

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
    }
}
