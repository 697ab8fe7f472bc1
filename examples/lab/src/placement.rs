//! The placement of experts on ranks, so that no rank has all the busy experts.
//!
//! What it does: the load of experts depends on the data, and the ranks of the expert axis wait for
//! the rank with the greatest load. Experts are placed again by measured load: the busiest first,
//! each on the least loaded rank that has a free place. Every rank has the same number of experts.
//! A placement decides which rank computes an expert, and does not change the result.
//! [`crate::rebalance`] moves experts to a new placement.
//!
//! What is sharded: experts. Which collective runs where: none here. Cost: a sort of the experts.
//!
//! Source: Graham, "Bounds on Multiprocessing Timing Anomalies" (1969), longest first.

/// The experts that each rank keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertPlacement {
    /// The experts of each rank. All ranks have equally many.
    pub kept: Vec<Vec<usize>>,
}

impl ExpertPlacement {
    /// The placement of expert `e` on rank `e / (experts / ranks)`.
    ///
    /// # Panics
    /// If the ranks do not divide the experts.
    pub fn even(experts: usize, ranks: usize) -> Self {
        let each = per_rank(experts, ranks);
        Self { kept: (0..ranks).map(|rank| (rank * each..(rank + 1) * each).collect()).collect() }
    }

    /// The placement that evens out `load`, a count for each expert.
    ///
    /// # Panics
    /// If the ranks do not divide the experts.
    pub fn balanced(load: &[u64], ranks: usize) -> Self {
        let each = per_rank(load.len(), ranks);
        let mut order: Vec<usize> = (0..load.len()).collect();
        order.sort_by_key(|expert| std::cmp::Reverse(load[*expert]));
        let mut kept = vec![Vec::with_capacity(each); ranks];
        for expert in order {
            let free = (0..ranks).filter(|rank| kept[*rank].len() < each);
            let carried =
                |rank: &usize| kept[*rank].iter().map(|expert| load[*expert]).sum::<u64>();
            let rank = free.min_by_key(carried).expect("there is a place for every expert");
            kept[rank].push(expert);
        }
        kept.iter_mut().for_each(|experts| experts.sort_unstable());
        Self { kept }
    }

    /// Returns, for experts that are placed as in [`even`](Self::even), the moves to this
    /// placement: for each place the place whose expert comes into it. Which rank gets which group
    /// of experts does not matter, so a group goes to the rank that has most of it already. Experts
    /// that stay on a rank keep their places.
    pub fn moves(&self) -> Vec<usize> {
        let each = self.kept[0].len();
        let mut from: Vec<usize> = (0..each * self.kept.len()).collect();
        for (rank, group) in self.hosted().into_iter().enumerate() {
            let places = rank * each..(rank + 1) * each;
            let arriving = group.iter().filter(|expert| !places.contains(expert));
            let free = places.clone().filter(|place| !group.contains(place));
            free.zip(arriving).for_each(|(place, expert)| from[place] = *expert);
        }
        from
    }

    /// Returns the group of experts that each rank takes. Of all pairs of a rank and a group, those
    /// with the most experts in common come first.
    fn hosted(&self) -> Vec<&[usize]> {
        let ranks = self.kept.len();
        let each = self.kept[0].len();
        let stay = |(rank, group): &(usize, usize)| {
            self.kept[*group].iter().filter(|it| *it / each == *rank).count()
        };
        let mut pairs: Vec<(usize, usize)> =
            (0..ranks * ranks).map(|nth| (nth / ranks, nth % ranks)).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(stay(pair)));
        let mut hosted = vec![None; ranks];
        for (rank, group) in pairs {
            if hosted[rank].is_none() && !hosted.contains(&Some(group)) {
                hosted[rank] = Some(group);
            }
        }
        hosted.into_iter().flatten().map(|group| &*self.kept[group]).collect()
    }

    /// Returns the load of the busiest rank divided by the mean: 1 if all ranks have equal load.
    pub fn imbalance(&self, load: &[u64]) -> f64 {
        let of = |experts: &Vec<usize>| experts.iter().map(|expert| load[*expert]).sum::<u64>();
        let most = self.kept.iter().map(of).max().unwrap_or(0);
        most as f64 * self.kept.len() as f64 / load.iter().sum::<u64>().max(1) as f64
    }
}

fn per_rank(experts: usize, ranks: usize) -> usize {
    assert!(
        ranks > 0 && experts.is_multiple_of(ranks),
        "{ranks} ranks do not divide {experts} experts"
    );
    experts / ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_trainer::tensor::random::random;

    #[test]
    fn every_expert_has_one_place() {
        for placement in
            [ExpertPlacement::even(8, 4), ExpertPlacement::balanced(&[9, 1, 8, 2, 7, 3, 6, 4], 4)]
        {
            let mut seen: Vec<usize> = placement.kept.concat();
            seen.sort_unstable();
            assert_eq!(seen, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn two_busy_experts_of_a_rank_are_separated() {
        let load = [100, 90, 10, 10, 10, 10, 10, 20];
        let even = ExpertPlacement::even(8, 2);
        let balanced = ExpertPlacement::balanced(&load, 2);
        assert!((even.imbalance(&load) - 210.0 / 130.0).abs() < 1e-9);
        assert!((balanced.imbalance(&load) - 1.0).abs() < 1e-9, "{balanced:?}");
    }

    #[test]
    fn few_experts_move_and_the_others_keep_their_places() {
        // Two of the first group are on rank 2, two of the second on rank 1; rank 0 keeps 0 of the
        // third.
        let placement = ExpertPlacement { kept: vec![vec![2, 6, 7], vec![1, 3, 4], vec![0, 5, 8]] };
        assert_eq!(placement.moves(), [0, 5, 8, 3, 4, 1, 6, 7, 2]);
    }

    #[test]
    fn moves_give_the_loads_of_the_placement() {
        for (seed, ranks) in [(1, 2), (2, 4), (3, 8), (4, 1)] {
            let load: Vec<u64> = (0..16).map(|expert| random(seed, expert) % 1000).collect();
            let balanced = ExpertPlacement::balanced(&load, ranks);
            let moved: Vec<u64> = balanced.moves().into_iter().map(|from| load[from]).collect();
            let even = ExpertPlacement::even(16, ranks);
            assert_eq!(even.imbalance(&moved), balanced.imbalance(&load));
            assert_eq!(
                even.moves(),
                (0..16).collect::<Vec<_>>(),
                "experts that are in place do not move"
            );
        }
    }
}
