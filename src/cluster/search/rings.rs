//! The ring whose worst link is best, among many devices.

use maypole::topology::rings::{self, EXACT, LinkWeights, Ring, bottleneck};

/// As [`rings::ring`]. For more than [`EXACT`] devices, joins short paths by their best ends, and improves that
/// ring until no exchange helps: a part of the ring is reversed, or moved elsewhere. The result is good, but
/// not always the best.
///
/// ```
/// use maypole_cluster::search::rings::ring;
/// // Twenty devices on a line: each hop of the ring but one is to a neighbour.
/// let near = |a: i32| (0..20).map(|b: i32| i32::from((a - b).abs() == 1)).collect();
/// let ring = ring(&(0..20).map(near).collect::<Vec<Vec<i32>>>());
/// assert!(ring.order.iter().copied().eq(0..20));
/// ```
///
/// # Panics
/// If `links` is not square.
pub fn ring<T: Ord + Copy>(links: &[Vec<T>]) -> Ring<T> {
    let Ring { mut order, .. } = rings::ring(links);
    if links.len() > EXACT {
        let weights = LinkWeights::new(links);
        order = joined(&weights, links.len());
        improve(&weights, &mut order);
        let first = order.iter().position(|device| *device == 0).expect("it has every device");
        order.rotate_left(first);
    }
    Ring { bottleneck: bottleneck(links, &order), order }
}

/// Joins paths of one device each, the best link first, until one path is left.
fn joined(weights: &LinkWeights, count: usize) -> Vec<usize> {
    let mut links: Vec<(usize, usize)> =
        (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).collect();
    links.retain(|(a, b)| a != b);
    links.sort_by_key(|&(a, b)| (weights.of(a, b), a, b));
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
    // The last device of the path is linked to the first.
    let first = before.iter().position(Option::is_none).expect("a path has a first device");
    let mut order = Vec::from_iter(std::iter::successors(Some(first), |&device| next[device]));
    let start = order.iter().position(|&device| device == 0).expect("every device is on the ring");
    order.rotate_left(start);
    order
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
        let ahead = sums(&|a, b| weights.of(a, b));
        let back = sums(&|a, b| weights.of(b, a));
        Self { weights, order, ahead, back }
    }

    fn weight(&self, from: usize, to: usize) -> u128 {
        self.weights.of(from, to)
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
    use maypole::topology::rings::hops;

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
        let of = |order: &[usize]| hops(order).map(|(a, b)| weights.of(a, b)).sum::<u128>();
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
}
