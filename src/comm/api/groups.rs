//! Groups of a communicator's ranks: communicators of their own.

use crate::comm::Communicator;
use crate::engine::agree::named_call;
use crate::error::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Communicator {
    /// Ranks of equal `color` form a new communicator, ordered by `key` and then by rank; those
    /// without a color get none. Collective: all ranks call it.
    ///
    /// The new communicator has its own board and streams, made at its first use. So two threads
    /// can use both communicators at the same time, and unread bytes of one never block the other.
    /// But groups of one world fail together: a failure of one fails the calls of all. Only a deadline
    /// of [`within`](Self::within) stays in the group in which it passes.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// // Six ranks as a mesh of two rows and three columns, with a communicator for each line.
    /// let sums = Communicator::run_local(6, |mut comm| {
    ///     let (row, column) = (comm.rank() / 3, comm.rank() % 3);
    ///     let mut along_row = comm.split(Some(row as u64), column as i64)?.expect("it has a color");
    ///     let mut along_column = comm.split(Some(column as u64), 0)?.expect("it has a color");
    ///     assert_eq!((along_row.rank(), along_row.world()), (column, 3));
    ///     assert_eq!((along_column.rank(), along_column.world()), (row, 2));
    ///     let (mut across, mut down) = ([comm.rank()], [comm.rank()]);
    ///     along_row.all_reduce(&mut across, ReduceOp::Sum)?;
    ///     along_column.all_reduce(&mut down, ReduceOp::Sum)?;
    ///     Ok::<_, maypole::Error>((across[0], down[0]))
    /// });
    /// let sums: Vec<_> = sums.into_iter().map(Result::unwrap).collect();
    /// assert_eq!(sums, [(3, 3), (3, 5), (3, 7), (12, 3), (12, 5), (12, 7)]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call instead;
    /// [`Error::TimedOut`](crate::Error::TimedOut) if not all ranks call it in time.
    #[doc(alias("MPI_Comm_split", "Comm_split", "ncclCommSplit", "new_group"))]
    pub fn split(&mut self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        let choices: Vec<(Option<u64>, i64)> = self.agree_on("split()", &(color, key))?;
        if color.is_none() {
            return Ok(None);
        }
        let mut members: Vec<usize> =
            (0..self.world()).filter(|rank| choices[*rank].0 == color).collect();
        members.sort_by_key(|rank| choices[*rank].1);
        Ok(Some(self.subgroup(&members)))
    }

    /// Makes another communicator of the same ranks, as [`split`](Self::split) makes communicators.
    /// For two threads of a rank that both call collectives, or for calls that must not wait for
    /// the requests of this communicator. Collective. A failure of one of the two fails both, as of
    /// all groups of a world; but a deadline of [`within`](Self::within) in the new one fails that alone.
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
    #[doc(alias("MPI_Comm_dup", "dup"))]
    pub fn duplicate(&mut self) -> Result<Self> {
        let members: Vec<usize> = (0..self.world()).collect();
        self.agree_on("duplicate()", &())?;
        Ok(self.subgroup(&members))
    }

    /// The group of the ranks `members`, joined by `boards` and `links`. `agree_on` has just
    /// numbered it.
    fn subgroup(&self, members: &[usize]) -> Self {
        let boards = self.boards().subset(members);
        let links = self.conditions().links.clone();
        let engine = self.engine.get().subgroup(members, boards, links);
        Self::new(engine, self.hosts.subset(members))
    }

    /// Checks that all ranks make the same new group by `call`. Returns their values, by rank.
    pub(crate) fn agree_on<T>(&mut self, call: &str, mine: &T) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let engine = self.engine.get_mut();
        let all = engine.tell_all(named_call(call), mine)?;
        engine.splits += 1;
        Ok(all)
    }
}
