//! Groups of a communicator's ranks: communicators of their own.

use crate::comm::Communicator;
use crate::comm::engine::Engine;
use crate::comm::error::Result;
use crate::schedule::hosts::Boards;

impl Communicator {
    /// Ranks of equal `color` form a new communicator, ordered by `key` and then by rank; those
    /// without a color get none. Collective: all ranks call it.
    ///
    /// The new communicator has its own board and streams, made at its first use: it can be used
    /// while this one is, in another thread, and what one of them leaves unread does not block the
    /// other.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect) if not all ranks call it in time.
    pub fn split(&mut self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        self.engine.check()?;
        let mut blob = vec![u8::from(color.is_some())];
        blob.extend(color.unwrap_or(0).to_le_bytes());
        blob.extend(key.to_le_bytes());
        let deadline = self.engine.deadline();
        let exchanged = self.engine.control.exchange(blob, deadline);
        self.engine.splits += 1;
        let mut refused = |why| self.engine.unconnected("split".to_owned(), why);
        let blobs = exchanged.map_err(&mut refused)?;
        let Some(color) = color else { return Ok(None) };
        let mut members = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            let (theirs, key) = parse_color(blob)
                .ok_or_else(|| refused(format!("rank {rank} did not call split")))?;
            if theirs == Some(color) {
                members.push((key, rank));
            }
        }
        members.sort_unstable();
        let members: Vec<usize> = members.into_iter().map(|(_, rank)| rank).collect();
        let boards = self.boards().subset(&members);
        Ok(Some(self.subgroup(&members, boards)))
    }

    /// The same ranks again, as a communicator of its own, as [`split`](Self::split) makes them:
    /// for two threads of a rank that each call collectives, or for calls that must not wait for
    /// this one's requests. Collective.
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
    /// [`Error::Connect`](crate::Error::Connect) if not all ranks call it in time.
    pub fn duplicate(&mut self) -> Result<Self> {
        let members: Vec<usize> = (0..self.world()).collect();
        let boards = self.boards().clone();
        self.agree("duplicate", "a duplicate")?;
        Ok(self.subgroup(&members, boards))
    }

    /// The group of these ranks of ours, joined by these boards. `splits` has just been counted up.
    pub(crate) fn subgroup(&self, members: &[usize], boards: Boards) -> Self {
        let engine = &*self.engine;
        let rank =
            members.iter().position(|member| *member == engine.rank).expect("we are a member");
        let hosts = self.hosts.subset(members);
        let control = engine.control.subgroup(members, engine.splits);
        let mut surroundings = self.surroundings;
        surroundings.waiting = surroundings.waiting.with_timeout(engine.timeout);
        let mut engine = Engine::new(rank, boards, control, surroundings);
        (engine.wanted, engine.preferred) = (self.engine.wanted, self.engine.preferred);
        (engine.deterministic, engine.memory) = (self.engine.deterministic, self.engine.memory);
        engine.watch_like(&self.engine, members, self.engine.splits);
        Self::new(engine, hosts)
    }

    /// Makes sure that all ranks ask for the same new group.
    pub(crate) fn agree(&mut self, operation: &'static str, what: &str) -> Result<()> {
        self.engine.check()?;
        let (rank, deadline) = (self.rank(), self.engine.deadline());
        let exchanged = self.engine.control.exchange(what.as_bytes().to_vec(), deadline);
        self.engine.splits += 1;
        let mut refused = |why| self.engine.unconnected(operation.to_owned(), why);
        let blobs = exchanged.map_err(&mut refused)?;
        match blobs.iter().position(|blob| blob != what.as_bytes()) {
            None => Ok(()),
            Some(other) => {
                let theirs = String::from_utf8_lossy(&blobs[other]);
                Err(refused(format!("rank {rank} asks for {what}, but rank {other} for {theirs}")))
            }
        }
    }
}

fn parse_color(blob: &[u8]) -> Option<(Option<u64>, i64)> {
    let [some, rest @ ..] = blob else { return None };
    let (color, key) = rest.split_first_chunk::<8>()?;
    let key = i64::from_le_bytes(key.try_into().ok()?);
    Some(((*some == 1).then(|| u64::from_le_bytes(*color)), key))
}
