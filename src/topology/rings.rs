//! The ring whose worst link is best.
//!
//! A ring is as fast as its worst link. So the search finds the Hamiltonian cycle whose worst link
//! is best. Among several it prefers the one with the fewest links of that class, then the fewest
//! of the next better class, and so on, because hops of a bad class often share one link.
//!
//! Up to [`EXACT`] devices the result is exact. The recursion of Held and Karp (1962) over subsets
//! takes `2^(n-1) n^2` steps. The weights of the classes are so far apart that no number of better
//! links outweighs a worse one.
//!
//! For more devices the search is a heuristic. It joins short paths by their best ends, and then
//! improves the ring until no exchange helps. The result is good, but not always the best.

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
/// greater the better. The diagonal is not used. An exact search returns the first of several best
/// rings, in the order of the device numbers.
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
        0..=3 if symmetric(links) => (0..count).collect(),
        0..=EXACT => ExactSearch::new(&LinkWeights::new(links)).order(),
        _ => heuristic(&LinkWeights::new(links)),
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

fn symmetric<T: Eq>(links: &[Vec<T>]) -> bool {
    (0..links.len()).all(|a| (0..a).all(|b| links[a][b] == links[b][a]))
}

/// The weights of links. One link of a worse class weighs more than a whole ring of better ones.
struct LinkWeights(Vec<Vec<u128>>);

impl LinkWeights {
    fn new<T: Ord + Copy>(links: &[Vec<T>]) -> Self {
        let count = links.len();
        let pairs =
            (0..count).flat_map(|a| (0..count).filter(move |&b| a != b).map(move |b| (a, b)));
        let mut kinds: Vec<T> = pairs.map(|(a, b)| links[a][b]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let needed = threshold(links, &kinds);
        // A weight has one digit for each class, from the deciding class upwards.
        let base = count as u128 + 1;
        let digits = u128::MAX.ilog(base.max(2)).saturating_sub(1);
        let weight = |kind: &T| {
            let place = kinds.binary_search(kind).expect("`kinds` has every kind of link");
            let better =
                u32::try_from(place.saturating_sub(needed)).unwrap_or(u32::MAX).min(digits - 1);
            let digit = digits - 1 - better;
            // A ring without any link below the threshold exists, so all of these weigh the same.
            if place < needed { base.pow(digits) } else { base.pow(digit) }
        };
        Self(
            links
                .iter()
                .map(|row| {
                    row.iter()
                        .map(|kind| if kinds.contains(kind) { weight(kind) } else { 0 })
                        .collect()
                })
                .collect(),
        )
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The index of the best class such that a ring of links of that class or better exists. 0 for
/// more devices than the exact search takes.
fn threshold<T: Ord + Copy>(links: &[Vec<T>], kinds: &[T]) -> usize {
    if links.len() > EXACT {
        return 0;
    }
    let mut can = 0;
    let mut cannot = kinds.len();
    while can + 1 < cannot {
        let middle = can.midpoint(cannot);
        let enough = |a: usize, b: usize| a != b && links[a][b] >= kinds[middle];
        if is_hamiltonian(links.len(), enough) { can = middle } else { cannot = middle }
    }
    can
}

/// Whether a ring of links that are `enough` exists. Finds for each set of devices where a path
/// from device 0 over that set can end.
fn is_hamiltonian(count: usize, enough: impl Fn(usize, usize) -> bool) -> bool {
    let into = |to: usize| {
        (0..count).filter(|&from| enough(from, to)).fold(0_u32, |set, from| set | 1 << from)
    };
    let into: Vec<u32> = (0..count).map(into).collect();
    let all = (1_usize << count) - 1;
    let mut ends = vec![0_u32; all + 1];
    ends[1] = 1;
    for set in (3..=all).step_by(2) {
        let reached = |to: &usize| set >> to & 1 == 1 && ends[set & !(1 << to)] & into[*to] != 0;
        ends[set] = (1..count).filter(reached).fold(0, |ends, to| ends | 1 << to);
    }
    ends[all] & into[0] != 0
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
        let mut rest = vec![u128::MAX; (1 << others) * weights.len()];
        for left in 0..1_usize << others {
            for at in 0..=others {
                if at == 0 || left >> (at - 1) & 1 == 0 {
                    rest[left * weights.len() + at] = Self::least(weights, &rest, left, at);
                }
            }
        }
        Self { weights, rest }
    }

    fn least(weights: &LinkWeights, rest: &[u128], left: usize, at: usize) -> u128 {
        let through =
            |to: usize| weights.0[at][to + 1] + rest[(left & !(1 << to)) * weights.len() + to + 1];
        members(left).map(through).min().unwrap_or(weights.0[at][0])
    }

    fn order(&self) -> Vec<usize> {
        let count = self.weights.len();
        let mut order = vec![0];
        let mut left = (1_usize << (count - 1)) - 1;
        while left != 0 {
            let at = order[order.len() - 1];
            let cost = |to: usize| {
                self.weights.0[at][to + 1] + self.rest[(left & !(1 << to)) * count + to + 1]
            };
            let next = members(left).min_by_key(|&to| cost(to)).expect("some are left");
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

/// Joins short paths by their best ends, then improves the ring.
fn heuristic(weights: &LinkWeights) -> Vec<usize> {
    let mut order = joined(weights);
    improve(weights, &mut order);
    let first = order.iter().position(|&device| device == 0).expect("every device is on the ring");
    order.rotate_left(first);
    order
}

/// Joins paths of one device each, the best link first, until one path is left.
fn joined(weights: &LinkWeights) -> Vec<usize> {
    let count = weights.len();
    let mut links: Vec<(usize, usize)> =
        (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).collect();
    links.retain(|(a, b)| a != b);
    links.sort_by_key(|&(a, b)| (weights.0[a][b], a, b));
    let mut next = vec![None; count];
    let mut before = vec![None; count];
    // By end of a path: its other end.
    let mut end: Vec<usize> = (0..count).collect();
    for (a, b) in links {
        if next[a].is_none() && before[b].is_none() && end[a] != b {
            next[a] = Some(b);
            before[b] = Some(a);
            let first = end[a];
            let last = end[b];
            end[first] = last;
            end[last] = first;
        }
    }
    let first =
        (0..count).find(|&device| before[device].is_none()).expect("a path has a first device");
    std::iter::successors(Some(first), |&device| next[device]).collect()
}

/// Reverses parts of the ring and moves parts elsewhere, as long as that makes the ring better.
fn improve(weights: &LinkWeights, order: &mut Vec<usize>) {
    while let Some(next) = RingHops::new(weights, order).better() {
        *order = next;
    }
}

/// The hops of a ring, to weigh an exchange without making the resulting ring.
struct RingHops<'a> {
    weights: &'a LinkWeights,
    order: &'a [usize],
    /// By place: the weight of the hops from the first device to that place, and of the same hops
    /// the other way.
    ahead: Vec<u128>,
    back: Vec<u128>,
}

/// The weight of the hops that an exchange adds, and of those that it removes.
type WeightChange = (u128, u128);

impl<'a> RingHops<'a> {
    fn new(weights: &'a LinkWeights, order: &'a [usize]) -> Self {
        let sums = |weight: &dyn Fn(usize, usize) -> u128| {
            let mut sum = 0;
            let hops = order.windows(2).map(|pair| {
                sum += weight(pair[0], pair[1]);
                sum
            });
            [0].into_iter().chain(hops).collect()
        };
        let ahead = sums(&|a, b| weights.0[a][b]);
        let back = sums(&|a, b| weights.0[b][a]);
        Self { weights, order, ahead, back }
    }

    fn weight(&self, from: usize, to: usize) -> u128 {
        self.weights.0[from][to]
    }

    /// The devices before and after the part `from..to`, and those at its ends.
    fn ends(&self, from: usize, to: usize) -> [usize; 4] {
        let count = self.order.len();
        let at = |place: usize| self.order[place % count];
        [at(from + count - 1), at(from), at(to - 1), at(to)]
    }

    /// The part `from..to` is reversed.
    fn turned(&self, from: usize, to: usize) -> WeightChange {
        let [before, first, last, behind] = self.ends(from, to);
        let brought = self.back[to - 1] - self.back[from];
        let taken = self.ahead[to - 1] - self.ahead[from];
        if to - from == self.order.len() {
            return (brought + self.weight(first, last), taken + self.weight(last, first));
        }
        let brought = brought + self.weight(before, last) + self.weight(first, behind);
        (brought, taken + self.weight(before, first) + self.weight(last, behind))
    }

    /// The part `from..to` is taken out, and put before place `at` of the rest.
    fn moved(&self, from: usize, to: usize, at: usize) -> WeightChange {
        let [before, first, last, behind] = self.ends(from, to);
        let count = self.order.len() - (to - from);
        let rest = |place: usize| {
            let place = place % count;
            self.order[if place < from { place } else { place + (to - from) }]
        };
        let (left, right) = (rest(at + count - 1), rest(at));
        let closed = self.weight(before, behind);
        let brought = closed + self.weight(left, first) + self.weight(last, right);
        let opened = self.weight(left, right);
        (brought, self.weight(before, first) + self.weight(last, behind) + opened)
    }

    /// The first ring that is better by one exchange.
    fn better(&self) -> Option<Vec<usize>> {
        let is_better = |(brought, taken): WeightChange| brought < taken;
        let turned = turns(self.order.len()).find(|&(from, to)| is_better(self.turned(from, to)));
        if let Some((from, to)) = turned {
            let mut next = self.order.to_vec();
            next[from..to].reverse();
            return Some(next);
        }
        let moved =
            moves(self.order.len()).find(|&(from, to, at)| is_better(self.moved(from, to, at)));
        moved.map(|(from, to, at)| {
            let mut rest = self.order.to_vec();
            let part: Vec<usize> = rest.drain(from..to).collect();
            rest.splice(at..at, part);
            rest
        })
    }
}

fn parts(count: usize, longest: usize) -> impl Iterator<Item = (usize, usize)> {
    let from = move |from| (from + 1..=count.min(from + longest)).map(move |to| (from, to));
    (0..count).flat_map(from)
}

fn turns(count: usize) -> impl Iterator<Item = (usize, usize)> {
    parts(count, count).filter(|(from, to)| to - from > 1)
}

/// Parts of up to three devices, and their new places.
fn moves(count: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    parts(count, 3).flat_map(move |(from, to)| {
        let places = (0..=count - (to - from)).filter(move |&at| at != from);
        places.map(move |at| (from, to, at))
    })
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
    fn the_heuristic_finds_known_best_rings() {
        // Hosts of eight devices with two sockets of four, numbered at random: with a unique best
        // ring.
        let mut random = RandomNumbers(5);
        for count in [17, 24, 48] {
            let mut place: Vec<usize> = (0..count).collect();
            (1..count).for_each(|at| place.swap(at, random.below(at as u64 + 1) as usize));
            let kind = |a: usize, b: usize| {
                if a / 4 == b / 4 {
                    5
                } else if a / 8 == b / 8 {
                    3
                } else {
                    1
                }
            };
            let links: Vec<Vec<u64>> = (0..count)
                .map(|a| (0..count).map(|b| kind(place[a], place[b])).collect())
                .collect();
            let found = ring(&links);
            assert!(is_ring(&found.order));
            let mut sorted: Vec<usize> = (0..count).collect();
            sorted.sort_by_key(|&device| place[device]);
            assert_eq!(kinds(&links, &found.order), kinds(&links, &sorted));
        }
    }

    /// Links differ by direction.
    #[test]
    fn an_exchange_is_weighed_as_the_ring_that_it_leads_to() {
        let links = RandomNumbers(11).links(7, 5);
        let weights = LinkWeights::new(&links);
        let of = |order: &[usize]| hops(order).map(|(a, b)| weights.0[a][b]).sum::<u128>();
        let order = [3, 0, 6, 1, 5, 2, 4];
        let ring = RingHops::new(&weights, &order);
        let is_right = |next: &[usize], (brought, taken): WeightChange| {
            assert_eq!(of(&order) + brought, of(next) + taken, "{next:?}");
        };
        for (from, to) in turns(order.len()) {
            let mut next = order;
            next[from..to].reverse();
            is_right(&next, ring.turned(from, to));
        }
        for (from, to, at) in moves(order.len()) {
            let mut next = order.to_vec();
            let part: Vec<usize> = next.drain(from..to).collect();
            next.splice(at..at, part);
            is_right(&next, ring.moved(from, to, at));
        }
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
