//! Continuing after a death.

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::world::service::ServiceError;

impl Communicator {
    /// Makes a communicator of those ranks that still exist, after this one has failed. Collective
    /// for them: each of them calls it, whichever rank has died, rank 0 too. The survivors keep
    /// their order and are numbered from 0; settings and timeout are inherited.
    ///
    /// A rank has gone if its process has ended, its host is unreachable, or it has dropped this
    /// communicator. A rank that dies while the others agree is left out, too. When the call
    /// returns, the new communicator has worked once; a rank that dies after that fails the new
    /// one, which can be shrunk in turn. This communicator stays failed, and is dropped as usual.
    /// Without any failure, all ranks continue.
    ///
    /// The call in which the others have failed is not determined: a call may have completed on
    /// some ranks and not on others. So continue from data that all of them have, such as the last
    /// checkpoint or step that all of them completed.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(4, |mut comm| {
    ///     if comm.rank() == 0 {
    ///         return None; // goes away
    ///     }
    ///     let mut ones = [1u32];
    ///     while comm.all_reduce(&mut ones, ReduceOp::Sum).is_err() {
    ///         comm = comm.shrink().unwrap();
    ///         ones = [1];
    ///     }
    ///     Some((comm.rank(), ones[0]))
    /// });
    /// assert_eq!(sums, [None, Some((0, 3)), Some((1, 3)), Some((2, 3))]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`] if a rank neither calls this nor ends within the shortest
    /// [`timeout`](Self::timeout) of those that call: the error names the rank, and the call can be
    /// repeated. Also if the others continued without this rank after a network partition.
    #[doc(alias("MPIX_Comm_shrink", "ncclCommShrink"))]
    pub fn shrink(&mut self) -> Result<Self> {
        self.engine.check_process()?;
        let rank = self.rank();
        let engine = self.engine.get_mut();
        let deadline = engine.limits.deadline();
        let found = engine.health.control.shrink(deadline);
        let refused = |why: ServiceError| Error::Connect {
            rank,
            operation: "shrink".to_owned(),
            why: why.to_string(),
        };
        let survivors = found.map_err(refused)?;
        engine.splits += 1;
        let boards = self.boards().subset(&survivors.members);
        let hosts = self.hosts.subset(&survivors.members);
        let engine = self.engine.get().group(&survivors.members, boards, survivors.control);
        Ok(Self::new(engine, hosts))
    }
}
