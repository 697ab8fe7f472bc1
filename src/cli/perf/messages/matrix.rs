//! The figures of all pairs of ranks.

use crate::perf::mapping::RankMapping;
use crate::table::figure;
use std::fmt::Write;

/// Microseconds of a message between each pair of ranks.
#[derive(Clone, Debug)]
pub(crate) struct PairMatrix {
    /// By sender and receiver; `None` where nothing was measured.
    us: Vec<Vec<Option<f64>>>,
    /// The kind of each rank's place: its machine, and its core where ranks share one.
    places: Vec<RankPlace>,
}

/// Where a rank is, as far as it decides what its links are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RankPlace {
    pub(crate) host: usize,
    /// Several hosts may be one machine, as containers are.
    pub(crate) machine: usize,
    pub(crate) core: Option<usize>,
}

/// What joins two ranks. Only links of one kind are compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum LinkKind {
    /// The two ranks take turns on a core.
    SharedCore,
    OneHost,
    BetweenHosts,
}

impl LinkKind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::SharedCore => "ranks of one core",
            Self::OneHost => "ranks of one host",
            Self::BetweenHosts => "ranks of two hosts",
        }
    }
}

impl PairMatrix {
    pub(crate) fn new(places: Vec<RankPlace>) -> Self {
        let world = places.len();
        Self { us: vec![vec![None; world]; world], places }
    }

    /// An empty matrix of the ranks of `mapping`.
    pub(crate) fn of(mapping: &RankMapping) -> Self {
        let place = |rank: usize| RankPlace {
            host: mapping.hosts.of(rank),
            machine: mapping.machines.of(rank),
            core: mapping.bound[rank],
        };
        Self::new((0..mapping.machines.world()).map(place).collect())
    }

    pub(crate) fn set(&mut self, from: usize, to: usize, us: f64) {
        self.us[from][to] = Some(us);
    }

    pub(crate) fn world(&self) -> usize {
        self.us.len()
    }

    /// The rows, one for each sender.
    pub(crate) fn rows(&self) -> &[Vec<Option<f64>>] {
        &self.us
    }

    pub(crate) fn kind(&self, a: usize, b: usize) -> LinkKind {
        let (a, b) = (self.places[a], self.places[b]);
        if a.machine == b.machine && a.core.is_some() && a.core == b.core {
            LinkKind::SharedCore
        } else if a.host != b.host {
            LinkKind::BetweenHosts
        } else {
            LinkKind::OneHost
        }
    }

    /// The links: sender, receiver, and microseconds. A symmetric link counts once.
    pub(crate) fn links(&self) -> Vec<(usize, usize, f64)> {
        let mut links = Vec::new();
        for (from, row) in self.us.iter().enumerate() {
            for (to, us) in row.iter().enumerate() {
                let is_mirrored = to < from && self.us[to][from] == *us;
                if let Some(us) = us.filter(|_| !is_mirrored) {
                    links.push((from, to, us));
                }
            }
        }
        links
    }

    /// The matrix as lines of text, each of `value` of the microseconds.
    pub(crate) fn text(&self, value: impl Fn(f64) -> f64) -> String {
        let mut text = "#  from\\to".to_owned();
        (0..self.world()).for_each(|to| text += &format!(" {to:>8}"));
        for (from, row) in self.us.iter().enumerate() {
            let _ = write!(text, "\n   {from:>7}");
            for us in row {
                text += &us.map_or_else(
                    || format!(" {:>8}", "-"),
                    |us| format!(" {:>8}", figure(value(us))),
                );
            }
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Ranks of one host with a core each, and the time of each link.
    pub(crate) fn matrix(world: usize, us: impl Fn(usize, usize) -> f64) -> PairMatrix {
        let place = |rank: usize| RankPlace { host: 0, machine: 0, core: Some(rank) };
        let mut matrix = PairMatrix::new((0..world).map(place).collect());
        for low in 0..world {
            for high in low + 1..world {
                matrix.set(low, high, us(low, high));
                matrix.set(high, low, us(low, high));
            }
        }
        matrix
    }

    #[test]
    fn links_count_once_where_they_are_symmetric() {
        let mut three = matrix(3, |_, _| 1.0);
        assert_eq!(three.links().len(), 3);
        three.set(2, 0, 5.0);
        assert_eq!(three.links().len(), 4);
    }

    #[test]
    fn the_text_has_a_row_for_each_sender() {
        let text = matrix(3, |low, high| (low + high) as f64 * 100.0).text(|us| us);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].contains("-   100.00   200.00"), "{text}");
    }

    #[test]
    fn kinds_follow_from_hosts_and_cores() {
        let place = |host, core| RankPlace { host, machine: host, core };
        let places = vec![place(0, Some(0)), place(0, Some(0)), place(0, None), place(1, Some(0))];
        let matrix = PairMatrix::new(places);
        assert_eq!(matrix.kind(0, 1), LinkKind::SharedCore);
        assert_eq!(matrix.kind(0, 2), LinkKind::OneHost);
        assert_eq!(matrix.kind(0, 3), LinkKind::BetweenHosts);
    }
}
