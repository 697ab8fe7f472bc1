//! The division of equal pieces of work over ranks that take unequal times for them.
//!
//! What it does: [`divide`] gives each piece to the rank that would be done with it first. What is
//! sharded: rows or layers, by the caller's choice. Which collective runs where: none; all ranks
//! compute the same division from the same costs. Cost: pieces times ranks additions.

/// The time that a rank takes for its pieces, in seconds or in any other unit that all ranks share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareCost {
    /// The time that does not depend on the number of pieces.
    pub fixed: f64,
    /// The time for each piece.
    pub each: f64,
}

impl ShareCost {
    /// Returns the time for `pieces` pieces.
    pub fn of(self, pieces: usize) -> f64 {
        self.fixed + self.each * pieces as f64
    }
}

/// Returns the number of pieces of each rank, of `pieces` in all, so that the slowest rank is done
/// as early as possible. Each rank gets at least one piece, if there are enough for all ranks.
///
/// Of two ranks that would be done at the same time, the one with the lower number gets the piece.
///
/// ```
/// use maypole_lab::unequal::divide::{ShareCost, divide};
/// let costs = [1.0, 2.0].map(|each| ShareCost { fixed: 0.0, each });
/// assert_eq!(divide(16, &costs), [11, 5]);
/// ```
///
/// # Panics
/// If there are no ranks.
pub fn divide(pieces: usize, costs: &[ShareCost]) -> Vec<usize> {
    assert!(!costs.is_empty(), "pieces are divided over one rank at least");
    let least = usize::from(pieces >= costs.len());
    let mut shares = vec![least; costs.len()];
    for _ in least * costs.len()..pieces {
        let done = |rank: &usize| costs[*rank].of(shares[*rank] + 1);
        let first = (0..costs.len()).min_by(|a, b| done(a).total_cmp(&done(b)));
        shares[first.expect("there is a rank")] += 1;
    }
    shares
}

/// Returns the time of the slowest rank, if rank `r` has `shares[r]` pieces.
pub fn slowest(shares: &[usize], costs: &[ShareCost]) -> f64 {
    shares.iter().zip(costs).map(|(pieces, cost)| cost.of(*pieces)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least time of the slowest rank over all divisions with at least one piece a rank.
    fn best(pieces: usize, costs: &[ShareCost]) -> f64 {
        let [cost, rest @ ..] = costs else { return f64::INFINITY };
        if rest.is_empty() {
            return cost.of(pieces);
        }
        let mine = 1..=pieces - rest.len();
        mine.map(|own| cost.of(own).max(best(pieces - own, rest))).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn no_other_division_is_faster(
            costs in proptest::collection::vec((0.0..3.0f64, 0.1..5.0f64), 1..5),
            more in 0usize..9,
        ) {
            let costs: Vec<ShareCost> =
                costs.into_iter().map(|(fixed, each)| ShareCost { fixed, each }).collect();
            let pieces = costs.len() + more;
            let shares = divide(pieces, &costs);
            prop_assert_eq!(shares.iter().sum::<usize>(), pieces);
            prop_assert!(shares.iter().all(|own| *own > 0));
            prop_assert!(slowest(&shares, &costs) <= best(pieces, &costs) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn ranks_of_equal_speed_get_equal_shares() {
        let costs = [ShareCost { fixed: 1.0, each: 0.3 }; 4];
        assert_eq!(divide(16, &costs), [4; 4]);
        assert_eq!(divide(18, &costs), [5, 5, 4, 4]);
    }

    #[test]
    fn a_batch_smaller_than_the_ranks_goes_to_the_fastest() {
        let costs = [3.0, 1.0, 2.0].map(|each| ShareCost { fixed: 0.0, each });
        assert_eq!(divide(2, &costs), [0, 2, 0]);
        assert_eq!(divide(0, &costs), [0; 3]);
        assert_eq!(divide(3, &costs), [1; 3]);
    }
}
