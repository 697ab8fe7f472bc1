//! The order in which all pairs are measured.
//!
//! Pairs are measured one after the other. In the order of their numbers, all pairs of rank 0 would
//! come first, and a disturbance at that time would look like a slow rank. So they take turns as in
//! the rounds of a tournament: no rank is in two pairs of a round, and every rank is spread evenly
//! over time.
//!
//! Source: the circle method for round-robin tournaments (Kirkman 1847).

/// All pairs of `world` ranks, each once, the lower rank first.
pub(crate) fn tournament(world: usize) -> Vec<(usize, usize)> {
    // With an odd number of ranks, one pauses in each round: the one that meets the last number.
    let seats = world.next_multiple_of(2);
    let mut pairs = Vec::new();
    for round in 0..seats.saturating_sub(1) {
        let seat = |nth: usize| match nth {
            0 => seats - 1,
            _ => (round + nth - 1) % (seats - 1),
        };
        for nth in 0..seats / 2 {
            let (a, b) = (seat(nth), seat(seats - 1 - nth));
            if a.max(b) < world {
                pairs.push((a.min(b), a.max(b)));
            }
        }
    }
    pairs
}

/// The pairs that send at the same time: rank `r` and rank `r + world / 2`.
pub(crate) fn halves(world: usize) -> Vec<(usize, usize)> {
    (0..world / 2).map(|rank| (rank, rank + world / 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_pair_is_met_once_in_disjoint_rounds() {
        for world in 0..=9 {
            let pairs = tournament(world);
            let distinct: BTreeSet<_> = pairs.iter().copied().collect();
            assert_eq!(pairs.len(), world * world.saturating_sub(1) / 2, "{world}");
            assert_eq!(distinct.len(), pairs.len(), "{world}");
            assert!(pairs.iter().all(|(low, high)| low < high && *high < world));
            for round in pairs.chunks((world / 2).max(1)) {
                let ranks: BTreeSet<_> = round.iter().flat_map(|(a, b)| [a, b]).collect();
                assert_eq!(ranks.len(), 2 * round.len(), "{world}: {round:?}");
            }
        }
    }

    #[test]
    fn halves_face_one_another() {
        assert_eq!(halves(2), [(0, 1)]);
        assert_eq!(halves(5), [(0, 2), (1, 3)]);
    }
}
