//! Names the slow links and the odd ranks of a matrix.
//!
//! A link is compared with the median of the links of its kind. A rank is odd if nearly all of its
//! links are slow: the fault is then its own, and its links are not named one by one.

use super::matrix::{LinkKind, PairMatrix};
use crate::names;
use crate::statistics::median;
use std::collections::BTreeMap;

/// From this multiple of the median of its kind on, a link is slow.
const SLOW: f64 = 1.5;
/// The fewest links of a kind of which one can be slow.
const FEWEST: usize = 3;
/// The most slow links that a sentence lists.
const MOST_LISTED: usize = 8;

/// A link: sender, receiver, microseconds.
type Link = (usize, usize, f64);

/// What stands out in a matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinkVerdict {
    /// Ranks nearly all of whose links are slow, and how many times as long their messages take.
    pub(crate) odd_ranks: Vec<(usize, f64)>,
    /// Other slow links: sender, receiver, and how many times as long their messages take.
    pub(crate) slow_links: Vec<(usize, usize, f64)>,
    /// The median of each kind without outliers, in microseconds.
    usual: BTreeMap<LinkKind, f64>,
}

impl LinkVerdict {
    pub(crate) fn of(matrix: &PairMatrix) -> Self {
        let mut links = matrix.links();
        let mut odd_ranks = Vec::new();
        while let Some((rank, times)) = oddest(matrix, &links) {
            odd_ranks.push((rank, times));
            links.retain(|(from, to, _)| *from != rank && *to != rank);
        }
        odd_ranks.sort_by_key(|(rank, _)| *rank);
        let usual = medians(matrix, &links);
        let count = |kind| links.iter().filter(|link| kind_of(matrix, link) == kind).count();
        let times = |link: &Link| {
            let kind = kind_of(matrix, link);
            let times = link.2 / usual.get(&kind)?;
            (times >= SLOW && count(kind) >= FEWEST).then_some((link.0, link.1, times))
        };
        let slow_links = links.iter().filter_map(times).collect();
        Self { odd_ranks, slow_links, usual }
    }

    /// The verdict in sentences, one a line.
    pub(crate) fn text(&self) -> String {
        let mut lines = Vec::new();
        for (rank, times) in &self.odd_ranks {
            lines.push(format!(
                "rank {rank} is odd: messages to and from it take {times:.1} times as long as \
                 those \
                 between other ranks"
            ));
        }
        let mut slow = self.slow_links.clone();
        slow.sort_by(|a, b| b.2.total_cmp(&a.2));
        let listed = slow.iter().take(MOST_LISTED);
        let listed = listed.map(|(from, to, times)| format!("{from}->{to} ({times:.1} times)"));
        match slow.len() {
            0 => {}
            1 => lines.push(format!("slow link: {}", names::listed(listed))),
            many => lines.push(format!("{many} slow links, first {}", names::listed(listed))),
        }
        if lines.is_empty() {
            lines.push(format!(
                "no link stands out: none takes {SLOW} times the median of its kind"
            ));
        }
        let kinds = self.usual.iter().map(|(kind, us)| format!("{}: {us:.2} us", kind.words()));
        lines.push(format!("median of a message between {}", names::listed(kinds)));
        lines.join("\n")
    }
}

fn kind_of(matrix: &PairMatrix, (from, to, _): &Link) -> LinkKind {
    matrix.kind(*from, *to)
}

fn medians(matrix: &PairMatrix, links: &[Link]) -> BTreeMap<LinkKind, f64> {
    let mut by_kind: BTreeMap<LinkKind, Vec<f64>> = BTreeMap::new();
    for link in links {
        by_kind.entry(kind_of(matrix, link)).or_default().push(link.2);
    }
    by_kind.into_iter().filter_map(|(kind, us)| Some((kind, median(us)?))).collect()
}

/// The rank whose links are slowest compared with those of the others, if nearly all are slow.
fn oddest(matrix: &PairMatrix, links: &[Link]) -> Option<(usize, f64)> {
    let odd = |rank: usize| {
        let (its, others): (Vec<Link>, Vec<Link>) =
            links.iter().partition(|(from, to, _)| *from == rank || *to == rank);
        let usual = medians(matrix, &others);
        let mut times: Vec<f64> = its
            .iter()
            .filter_map(|link| Some(link.2 / usual.get(&kind_of(matrix, link))?))
            .collect();
        times.sort_by(f64::total_cmp);
        // One link is no evidence about a rank; of many, a few may be as fast as usual.
        let low = *times.get(times.len() / 4).filter(|_| times.len() > 1)?;
        let middle = median(times)?;
        (low >= SLOW).then_some((rank, middle))
    };
    (0..matrix.world()).filter_map(odd).max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::RankPlace;
    use super::super::matrix::tests::matrix;
    use super::*;

    /// Times that differ by a few percent, as measured ones do.
    fn usual(low: usize, high: usize) -> f64 {
        4.0 + ((low * 7 + high * 3) % 5) as f64 / 10.0
    }

    #[test]
    fn a_slow_link_is_named_alone() {
        for world in [3, 4, 8] {
            let slow = |low, high| usual(low, high) * if (low, high) == (0, 2) { 3.0 } else { 1.0 };
            let verdict = LinkVerdict::of(&matrix(world, slow));
            assert_eq!(verdict.odd_ranks, [], "{world}");
            let [(0, 2, times)] = verdict.slow_links[..] else { panic!("{world}: {verdict:?}") };
            assert!((2.5..3.6).contains(&times), "{times}");
            assert!(verdict.text().starts_with("slow link: 0->2 ("), "{}", verdict.text());
        }
    }

    #[test]
    fn a_slow_rank_is_named_and_its_links_are_not() {
        for world in [3, 4, 8] {
            for rank in 0..world {
                let times = |low, high| if low == rank || high == rank { 10.0 } else { 1.0 };
                let slow = |low, high| usual(low, high) * times(low, high);
                let verdict = LinkVerdict::of(&matrix(world, slow));
                assert_eq!(verdict.odd_ranks.len(), 1, "{rank} of {world}: {verdict:?}");
                assert_eq!(verdict.odd_ranks[0].0, rank);
                assert_eq!(verdict.slow_links, []);
                assert!(verdict.text().starts_with(&format!("rank {rank} is odd")));
            }
        }
    }

    #[test]
    fn two_slow_ranks_and_a_slow_link_are_told_apart() {
        let slow = |low, high| match (low, high) {
            (2, _) | (_, 2) | (5, _) | (_, 5) => 40.0,
            (0, 1) => 12.0,
            _ => usual(low, high),
        };
        let verdict = LinkVerdict::of(&matrix(8, slow));
        assert_eq!(verdict.odd_ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(
            verdict.slow_links.iter().map(|link| (link.0, link.1)).collect::<Vec<_>>(),
            [(0, 1)]
        );
    }

    #[test]
    fn nothing_is_named_where_links_are_alike_or_of_another_kind() {
        let alike = LinkVerdict::of(&matrix(5, usual));
        assert!(alike.odd_ranks.is_empty() && alike.slow_links.is_empty());
        assert!(alike.text().starts_with("no link stands out"));
        // Two hosts of two ranks: links between them take longer.
        let place = |rank: usize| RankPlace { host: rank / 2, machine: 0, core: None };
        let mut hosts = PairMatrix::new((0..4).map(place).collect());
        for (from, to, us) in matrix(4, usual).links() {
            let us = if from / 2 == to / 2 { us } else { 20.0 * us };
            hosts.set(from, to, us);
            hosts.set(to, from, us);
        }
        let verdict = LinkVerdict::of(&hosts);
        assert!(verdict.odd_ranks.is_empty() && verdict.slow_links.is_empty(), "{verdict:?}");
        assert!(verdict.text().contains("ranks of two hosts: "), "{}", verdict.text());
    }

    #[test]
    fn a_link_may_be_slow_in_one_direction() {
        let mut both = matrix(4, usual);
        both.set(3, 1, 50.0);
        let verdict = LinkVerdict::of(&both);
        assert_eq!(verdict.slow_links.len(), 1);
        assert!(verdict.text().starts_with("slow link: 3->1 ("), "{}", verdict.text());
    }

    #[test]
    fn two_ranks_have_no_verdict() {
        let verdict = LinkVerdict::of(&matrix(2, |_, _| 900.0));
        assert!(verdict.odd_ranks.is_empty() && verdict.slow_links.is_empty());
    }
}
