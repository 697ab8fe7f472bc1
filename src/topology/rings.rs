//! The ring whose worst link is best.
//!
//! A ring is as fast as its worst link. So the search finds the Hamiltonian cycle whose worst link
//! is best. Among several it prefers the one with the fewest links of that class, then the fewest
//! of the next better class, and so on, because hops of a bad class often share one link.
//!
//! Up to [`EXACT`] devices the result is exact. The recursion of Held and Karp (1962) over subsets
//! takes `2^(n-1) n^2` steps. The weights of the classes are so far apart that no number of better
//! links outweighs a worse one. Weights tell thirty classes apart among 16 devices, and more among
//! fewer; the best of still more classes count as one.
//!
//! More devices keep their order. The crate `maypole-cluster` searches for rings of them, by a heuristic.

/// The largest number of devices for which the search is exact.
pub const EXACT: usize = 16;

/// A ring over all devices.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Ring<T> {
    /// The devices in the order of the ring, from device 0 on. The last one is linked to the first.
    pub order: Vec<usize>,
    /// The worst link of the ring; `None` for a single device.
    pub bottleneck: Option<T>,
}

/// Finds the best ring, where `links[a][b]` is the quality of the link from `a` to `b`: the
/// greater the better. The diagonal is not used. The search returns the first of several best rings, in
/// the order of the device numbers. More than [`EXACT`] devices keep their order.
///
/// ```
/// use maypole::topology::PathClass::*;
/// use maypole::topology::rings::ring;
/// // Two pairs that NVLinks join. The ring crosses NVLinks twice, and the sockets twice.
/// let links = [[Same, Sys, NvLink(4), Sys], [Sys, Same, Sys, NvLink(4)],
///     [NvLink(4), Sys, Same, Sys], [Sys, NvLink(4), Sys, Same]].map(Vec::from);
/// let ring = ring(&links);
/// assert_eq!((ring.order, ring.bottleneck), (vec![0, 1, 3, 2], Some(Sys)));
/// ```
///
/// # Panics
/// If `links` is not square.
pub fn ring<T: Ord + Copy>(links: &[Vec<T>]) -> Ring<T> {
    let count = links.len();
    assert!(
        links.iter().all(|row| row.len() == count),
        "one link for each pair of {count} devices"
    );
    let order = match count {
        0 => Vec::new(),
        1..=EXACT => ExactSearch::new(&LinkWeights::new(links)).order(),
        _ => (0..count).collect(),
    };
    Ring { bottleneck: bottleneck(links, &order), order }
}

/// Returns the worst link of a ring, the closing one included; `None` for a single device.
///
/// # Panics
/// If `order` has a device that `links` does not have.
pub fn bottleneck<T: Ord + Copy>(links: &[Vec<T>], order: &[usize]) -> Option<T> {
    hops(order).filter(|(a, b)| a != b).map(|(a, b)| links[a][b]).min()
}

/// Returns the hops of a ring: from each device to the next, and from the last to the first.
pub fn hops(order: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    order.iter().copied().zip(order.iter().copied().cycle().skip(1))
}

/// The weights of links. One link of a worse class weighs more than a whole ring of better ones.
#[derive(Clone, Debug)]
pub struct LinkWeights(Vec<Vec<u128>>);

impl LinkWeights {
    /// The weights of `links`, as of those of a [`ring`].
    ///
    /// # Panics
    /// If `links` is not square.
    pub fn new<T: Ord + Copy>(links: &[Vec<T>]) -> Self {
        let count = links.len();
        let pairs =
            (0..count).flat_map(|a| (0..count).filter(move |&b| a != b).map(move |b| (a, b)));
        let mut kinds: Vec<T> = pairs.map(|(a, b)| links[a][b]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        // A weight has one digit for each class, the best classes the last one together.
        let base = count as u128 + 1;
        let digits = u128::MAX.ilog(base.max(2)).saturating_sub(1);
        let weight = |kind: &T| match kinds.binary_search(kind) {
            Ok(place) => base.pow(digits - 1 - (place as u32).min(digits - 1)),
            // Only the diagonal has other kinds.
            Err(_) => 0,
        };
        Self(links.iter().map(|row| row.iter().map(weight).collect()).collect())
    }

    /// The weight of the link from `a` to `b`.
    ///
    /// # Panics
    /// If there are no such devices.
    pub fn of(&self, a: usize, b: usize) -> u128 {
        self.0[a][b]
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The least weight of the rest of a ring, by the current device and the set of devices left.
struct ExactSearch<'a> {
    weights: &'a LinkWeights,
    /// `rest[left * n + at]`: the least weight from `at` through all of the set `left` and back to
    /// device 0.
    rest: Vec<u128>,
}

impl<'a> ExactSearch<'a> {
    /// Bit `i` of a set stands for device `i + 1`.
    fn new(weights: &'a LinkWeights) -> Self {
        let others = weights.len() - 1;
        let rest = vec![u128::MAX; (1 << others) * weights.len()];
        let mut search = Self { weights, rest };
        for left in 0..1_usize << others {
            for at in 0..=others {
                if at == 0 || left >> (at - 1) & 1 == 0 {
                    let through = members(left).map(|to| search.through(left, at, to)).min();
                    search.rest[left * weights.len() + at] = through.unwrap_or(weights.0[at][0]);
                }
            }
        }
        search
    }

    /// The least weight from `at` first to the device of bit `to`, then through the others of `left`.
    fn through(&self, left: usize, at: usize, to: usize) -> u128 {
        let after = (left & !(1 << to)) * self.weights.len() + to + 1;
        self.weights.0[at][to + 1] + self.rest[after]
    }

    fn order(&self) -> Vec<usize> {
        let mut order = vec![0];
        let mut left = (1_usize << (self.weights.len() - 1)) - 1;
        while left != 0 {
            let at = order[order.len() - 1];
            let next = members(left).min_by_key(|&to| self.through(left, at, to));
            let next = next.expect("some are left");
            order.push(next + 1);
            left &= !(1 << next);
        }
        order
    }
}

fn members(set: usize) -> impl Iterator<Item = usize> {
    let next = |set: &usize| Some(set & (set - 1)).filter(|&rest| rest != 0);
    std::iter::successors(Some(set).filter(|&set| set != 0), next)
        .map(|set| set.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A linear congruential generator.
    struct RandomNumbers(u64);

    impl RandomNumbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn links(&mut self, count: usize, kinds: u64) -> Vec<Vec<u64>> {
            (0..count).map(|_| (0..count).map(|_| self.below(kinds)).collect()).collect()
        }
    }

    fn is_ring(order: &[usize]) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        order.first().is_none_or(|&first| first == 0) && sorted.iter().copied().eq(0..order.len())
    }

    /// The kinds of all links, the worst first.
    fn kinds(links: &[Vec<u64>], order: &[usize]) -> Vec<u64> {
        let mut kinds: Vec<u64> = hops(order).map(|(a, b)| links[a][b]).collect();
        kinds.sort_unstable();
        kinds
    }

    fn every_ring(count: usize) -> Vec<Vec<usize>> {
        let mut rings = vec![vec![0]];
        for _ in 1..count {
            let longer = |ring: &Vec<usize>| {
                let ring = ring.clone();
                (1..count)
                    .filter(|next| !ring.contains(next))
                    .map(|next| [ring.clone(), vec![next]].concat())
                    .collect()
            };
            rings = rings.iter().flat_map(|ring| -> Vec<Vec<usize>> { longer(ring) }).collect();
        }
        rings
    }

    #[test]
    fn no_ring_is_better_than_the_exact_one() {
        let mut random = RandomNumbers(7);
        for count in 1..=7 {
            for _ in 0..30 {
                let limit = 1 + random.below(40);
                let links = random.links(count, limit);
                let found = ring(&links);
                assert!(is_ring(&found.order));
                // Fewest of the worst kind is the greatest list of kinds, worst first.
                let best = every_ring(count).into_iter().map(|order| kinds(&links, &order)).max();
                if count > 1 {
                    assert_eq!(Some(kinds(&links, &found.order)), best, "{links:?}");
                }
            }
        }
    }

    #[test]
    fn sixteen_devices_take_little_time() {
        let links = RandomNumbers(3).links(16, 9);
        let found = ring(&links);
        assert!(is_ring(&found.order) && found.bottleneck == bottleneck(&links, &found.order));
    }

    #[test]
    fn equal_links_keep_the_order_of_the_devices() {
        assert_eq!(ring(&vec![vec![1; 6]; 6]).order, [0, 1, 2, 3, 4, 5]);
        assert_eq!(ring::<u8>(&[]), Ring { order: vec![], bottleneck: None });
        assert_eq!(ring(&[vec![1]]), Ring { order: vec![0], bottleneck: None });
        assert_eq!(
            ring(&[vec![0, 4], vec![3, 0]]),
            Ring { order: vec![0, 1], bottleneck: Some(3) }
        );
    }
}
