//! As many edge-disjoint rings as direct links allow: no pair is in more rings than it has links.
//!
//! One ring does not use all links of a mesh. Eight MI300X have seven links each, and seven rings
//! use all of them. The search is a backtracking search. It builds one ring after the other and
//! tries the link with the most uses left first. It runs twice: first every ring is followed by
//! its reverse, which halves the work where links are many, then without that rule.
//!
//! The search ends after a fixed number of steps with the best rings so far. The result is exact
//! where it reaches the upper bound: no device has more rings than links.

/// The number of steps after which the search ends.
const MOST_STEPS: usize = 1 << 18;

/// Finds rings through all devices, each from device 0 on. At most `links[a][b]` rings go from `a`
/// to `b`. Empty if no ring exists, as for a single device.
///
/// ```
/// use maypole_cluster::search::disjoint::rings;
/// let mesh = vec![vec![1; 8]; 8];
/// assert_eq!(rings(&mesh).len(), 7);
/// ```
///
/// # Panics
/// If `links` is not square.
pub fn rings(links: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let count = links.len();
    assert!(
        links.iter().all(|row| row.len() == count),
        "one number for each pair of {count} devices"
    );
    if count < 2 {
        return Vec::new();
    }
    let out = |device: usize| {
        (0..count).filter(|&other| other != device).map(|other| links[device][other]).sum::<u32>()
    };
    let into = |device: usize| {
        (0..count).filter(|&other| other != device).map(|other| links[other][device]).sum::<u32>()
    };
    let bound = (0..count).map(|device| out(device).min(into(device))).min().unwrap_or(0) as usize;
    let search = |reverses| {
        let mut search = DisjointSearch {
            left: links.to_vec(),
            bound,
            reverses,
            steps: 0,
            rings: vec![],
            best: vec![],
        };
        search.next_ring();
        search.best
    };
    let paired = search(true);
    if paired.len() == bound {
        return paired;
    }
    let free = search(false);
    if free.len() > paired.len() { free } else { paired }
}

struct DisjointSearch {
    /// By pair: how many more rings may use it.
    left: Vec<Vec<u32>>,
    bound: usize,
    /// Whether every ring is followed by its reverse.
    reverses: bool,
    steps: usize,
    rings: Vec<Vec<usize>>,
    best: Vec<Vec<usize>>,
}

impl DisjointSearch {
    /// Searches for one more ring. True when the search has ended.
    fn next_ring(&mut self) -> bool {
        if self.rings.len() > self.best.len() {
            self.best = self.rings.clone();
        }
        self.best.len() == self.bound || self.extend(&mut vec![0])
    }

    fn extend(&mut self, path: &mut Vec<usize>) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return true;
        }
        let at = path[path.len() - 1];
        if path.len() == self.left.len() {
            return self.left[at][0] > 0 && self.close(path);
        }
        let mut next: Vec<usize> = (1..self.left.len())
            .filter(|&to| self.left[at][to] > 0 && !path.contains(&to))
            .collect();
        next.sort_by_key(|&to| std::cmp::Reverse(self.left[at][to]));
        for to in next {
            path.push(to);
            let over = self.extend(path);
            path.pop();
            if over {
                return true;
            }
        }
        false
    }

    /// Adds the ring, searches on, and removes it again.
    fn close(&mut self, path: &[usize]) -> bool {
        let mut back = path.to_vec();
        back[1..].reverse();
        let rings = if self.reverses { vec![path.to_vec(), back] } else { vec![path.to_vec()] };
        if self.reverses && !fits(&self.left, &rings) {
            return false;
        }
        let taken = rings.len();
        rings.iter().for_each(|ring| self.hops(ring, |left| left - 1));
        self.rings.extend(rings);
        let over = self.next_ring();
        for ring in self.rings.split_off(self.rings.len() - taken) {
            self.hops(&ring, |left| left + 1);
        }
        over
    }

    fn hops(&mut self, ring: &[usize], change: impl Fn(u32) -> u32) {
        for (a, b) in maypole::topology::rings::hops(ring) {
            self.left[a][b] = change(self.left[a][b]);
        }
    }
}

fn fits(left: &[Vec<u32>], rings: &[Vec<usize>]) -> bool {
    let mut left = left.to_vec();
    rings.iter().flat_map(|ring| maypole::topology::rings::hops(ring)).all(|(a, b)| {
        let enough = left[a][b] > 0;
        left[a][b] = left[a][b].saturating_sub(1);
        enough
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(links: &[Vec<u32>], expected: usize) {
        let found = rings(links);
        assert!(fits(links, &found), "{found:?}");
        for ring in &found {
            let mut sorted = ring.clone();
            sorted.sort_unstable();
            assert!(ring[0] == 0 && sorted.into_iter().eq(0..links.len()));
        }
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn rings_use_every_link_of_a_mesh() {
        for (devices, links) in [(2, 4), (3, 2), (4, 4), (5, 1), (7, 1), (8, 1), (8, 2)] {
            check(&vec![vec![links; devices]; devices], links as usize * (devices - 1));
        }
        // The two meshes that are no union of such rings (Tillson 1980).
        check(&vec![vec![1; 4]; 4], 2);
        check(&vec![vec![1; 6]; 6], 4);
    }

    /// The hybrid cube of eight V100, six links each: six rings, as NCCL finds.
    #[test]
    fn a_cube_of_eight_has_six() {
        let pairs = [
            (0, 1, 1),
            (0, 2, 1),
            (0, 3, 2),
            (0, 4, 2),
            (1, 2, 2),
            (1, 3, 1),
            (1, 5, 2),
            (2, 3, 2),
            (2, 6, 1),
            (3, 7, 1),
            (4, 5, 1),
            (4, 6, 1),
            (4, 7, 2),
            (5, 6, 2),
            (5, 7, 1),
            (6, 7, 2),
        ];
        let mut links = vec![vec![0; 8]; 8];
        for (a, b, count) in pairs {
            links[a][b] = count;
            links[b][a] = count;
        }
        check(&links, 6);
    }

    #[test]
    fn no_ring_is_found_where_none_exists() {
        check(&[], 0);
        check(&[vec![3]], 0);
        check(&[vec![0, 1, 0], vec![1, 0, 1], vec![0, 1, 0]], 0);
    }
}
