//! Worlds that are no power of two: the ranks that are too many give their part to a neighbour, and
//! get the result.
//!
//! Algorithms that double distances want `2^k` *members*. Of `2^k + s` ranks, the first `2 s` form
//! pairs of neighbours; the lower of a pair is a member and the upper one its *guest*. All other
//! ranks are members without a guest. So the ranks of consecutive members, with their guests, are
//! consecutive too, and a member and its guest can combine their parts in the order of the ranks.
//!
//! ```text
//! rank    0   1   2   3   4   5        six ranks: four members and two guests
//! member  0 <-0   1 <-1   2   3
//! ```
//!
//! **Cost**: one more step at each end; whole vectors, where the algorithm combines.
//!
//! **Source**: R. Rabenseifner, J. L. Traff, "More efficient reduction algorithms for
//! non-power-of-two number of processors in message-passing parallel systems", EuroPVM/MPI 2004 (as
//! the method that the paper improves on).

use std::ops::Range;

/// Who is a member, and of whom.
#[derive(Clone, Copy)]
pub(super) struct Members {
    /// How many members there are: a power of two.
    pub(super) count: usize,
    guests: usize,
}

/// What a rank is.
pub(super) enum Seat {
    Member { member: usize, guest: Option<usize> },
    Guest { host: usize },
}

impl Members {
    /// As many members as fit into `world`.
    pub(super) const fn new(world: usize) -> Self {
        let count = 1 << world.ilog2();
        Self { count, guests: world - count }
    }

    /// How often the members can be halved.
    pub(super) const fn levels(&self) -> usize {
        self.count.ilog2() as usize
    }

    /// The rank of `member`; for `count` itself, the end of the ranks.
    pub(super) const fn rank(&self, member: usize) -> usize {
        if member < self.guests { 2 * member } else { member + self.guests }
    }

    /// The ranks of `members` and of their guests.
    pub(super) const fn ranks(&self, members: Range<usize>) -> Range<usize> {
        self.rank(members.start)..self.rank(members.end)
    }

    pub(super) const fn seat(&self, rank: usize) -> Seat {
        match (rank < 2 * self.guests, rank % 2) {
            (true, 0) => Seat::Member { member: rank / 2, guest: Some(rank + 1) },
            (true, _) => Seat::Guest { host: rank - 1 },
            (false, _) => Seat::Member { member: rank - self.guests, guest: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_one_seat() {
        for world in 1..100 {
            let members = Members::new(world);
            let mut seated = vec![0; world];
            for member in 0..members.count {
                for rank in members.ranks(member..member + 1) {
                    seated[rank] += 1;
                    match members.seat(rank) {
                        Seat::Member { member: found, .. } => assert_eq!(found, member),
                        Seat::Guest { host } => assert_eq!(host, members.rank(member)),
                    }
                }
            }
            assert!(seated.iter().all(|&seats| seats == 1), "world {world}");
        }
    }
}
