//! Groups of a communicator's ranks: communicators of their own.

use crate::comm::Communicator;
use crate::engine::agree::named_call;
use crate::error::Result;
use crate::schedule::hosts::Boards;
use crate::topology::StreamLinks;
use serde::{Deserialize, Serialize};

impl Communicator {
    /// Ranks of equal `color` form a new communicator, ordered by `key` and then by rank; those
    /// without a color get none. Collective: all ranks call it.
    ///
    /// The new communicator has its own board and streams, made at its first use. So two threads
    /// can use both communicators at the same time, and unread bytes of one never block the other.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call instead;
    /// [`Error::TimedOut`](crate::Error::TimedOut) if not all ranks call it in time.
    pub fn split(&mut self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        let engine = self.engine.get_mut();
        let choice = GroupChoice { color, key };
        let blobs = engine.exchange(named_call("split()"), choice.to_bytes())?;
        engine.count_split();
        let Some(color) = color else { return Ok(None) };
        let mut members = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            let theirs = GroupChoice::from_bytes(blob).map_err(|why| {
                engine.unconnected("split()".to_owned(), format!("rank {rank} sent {why}"))
            })?;
            if theirs.color == Some(color) {
                members.push((theirs.key, rank));
            }
        }
        members.sort_unstable();
        let members: Vec<usize> = members.into_iter().map(|(_, rank)| rank).collect();
        let boards = self.boards().subset(&members);
        let links = self.conditions.links.clone();
        Ok(Some(self.subgroup(&members, boards, links)))
    }

    /// Makes another communicator of the same ranks, as [`split`](Self::split) makes communicators.
    /// For two threads of a rank that both call collectives, or for calls that must not wait for
    /// the requests of this communicator. Collective.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     let mut other = comm.duplicate().unwrap();
    ///     let request = comm.start_all_reduce(vec![1.0f32; 100_000], ReduceOp::Sum);
    ///     other.barrier().unwrap(); // while that goes on
    ///     assert_eq!(request.wait().unwrap()[0], 2.0);
    /// });
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call instead;
    /// [`Error::TimedOut`](crate::Error::TimedOut) if not all ranks call it in time.
    pub fn duplicate(&mut self) -> Result<Self> {
        let members: Vec<usize> = (0..self.world()).collect();
        let boards = self.boards().clone();
        self.agree("duplicate()")?;
        let links = self.conditions.links.clone();
        Ok(self.subgroup(&members, boards, links))
    }

    /// The group of the ranks `members`, joined by `boards` and `links`. `agree` or `split` has just
    /// numbered it.
    pub(crate) fn subgroup(&self, members: &[usize], boards: Boards, links: StreamLinks) -> Self {
        let engine = self.engine.get().subgroup(members, boards, links);
        Self::new(engine, self.hosts.subset(members))
    }

    /// Makes sure that all ranks ask for the same new group by `call`.
    pub(crate) fn agree(&mut self, call: &str) -> Result<()> {
        self.agree_on(call, Vec::new()).map(drop)
    }

    /// Makes sure that all ranks ask for the same new group by `call`. Returns what they tell about
    /// it, by rank.
    pub(crate) fn agree_on(&mut self, call: &str, told: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let engine = self.engine.get_mut();
        let all = engine.exchange(named_call(call), told)?;
        engine.count_split();
        Ok(all)
    }
}

/// The group that a rank chooses, and its place there.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct GroupChoice {
    color: Option<u64>,
    key: i64,
}

impl GroupChoice {
    fn to_bytes(self) -> Vec<u8> {
        postcard::to_stdvec(&self).expect("two numbers can be serialized")
    }

    /// # Errors
    /// What is wrong with `bytes`.
    fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((choice, [])) => Ok(choice),
            Ok(_) => Err(format!("{} bytes, which are not a color and a key", bytes.len())),
            Err(error) => Err(format!("no color and key: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn choices_are_read_back(color: Option<u64>, key: i64) {
            let choice = GroupChoice { color, key };
            prop_assert_eq!(GroupChoice::from_bytes(&choice.to_bytes()), Ok(choice));
        }

        #[test]
        fn other_bytes_are_an_error_or_a_choice(bytes: Vec<u8>) {
            if let Ok(choice) = GroupChoice::from_bytes(&bytes) {
                prop_assert_eq!(GroupChoice::from_bytes(&choice.to_bytes()), Ok(choice));
            }
        }
    }
}
