//! The status of a rank, for people and tools that diagnose a hang.

use crate::comm::Communicator;
use crate::status::{RankStatus, StatusHandle};

impl Communicator {
    /// Returns the status of this rank in all of its groups: its operation and the rank that it
    /// waits for, the last 1000 calls, and the observations of the control plane. Does not wait for
    /// requests in flight, and sends nothing to other ranks. In a forked child the status only
    /// contains that the communicator was created before the fork.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let said = Communicator::run_local(2, |mut comm| {
    ///     for _ in 0..5 {
    ///         comm.all_reduce(&mut [1.0f32; 8], ReduceOp::Sum).unwrap();
    ///     }
    ///     comm.barrier().unwrap();
    ///     let status = comm.status();
    ///     let world = &status.groups[0];
    ///     assert_eq!((world.completed, world.pending.is_none()), (6, true));
    ///     assert_eq!((world.recent[0].first, world.recent[0].count), (0, 5));
    ///     status.to_string()
    /// });
    /// assert!(said[0].contains("outside the library after 6 operations, the last of them barrier()"));
    /// ```
    pub fn status(&self) -> RankStatus {
        match self.engine.is_forked() {
            false => self.engine.control.status(),
            true => {
                let failure = Some("the communicator was created before fork".to_owned());
                let here = (self.rank(), self.world());
                RankStatus { failure, ..RankStatus::of(here, &[], false, None) }
            }
        }
    }

    /// Returns a handle to the [status](Self::status) of this rank for other threads, also while a
    /// call blocks.
    ///
    /// ```
    /// use maypole::Communicator;
    /// use std::time::Duration;
    /// let mut comms = Communicator::local(2);
    /// let handle = comms[0].status_handle();
    /// std::thread::scope(|threads| {
    ///     // Rank 1 never calls.
    ///     let call = threads.spawn(|| comms[0].within(Duration::from_secs(5)).barrier());
    ///     let awaits = loop {
    ///         let status = handle.status().unwrap();
    ///         let pending = status.groups[0].pending.as_ref();
    ///         match pending.and_then(|pending| pending.awaits) {
    ///             Some(rank) => break rank,
    ///             None => assert!(!call.is_finished(), "{status}"),
    ///         }
    ///     };
    ///     assert_eq!(awaits, 1);
    /// });
    /// ```
    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle::new(&self.engine.control, self.engine.owner())
    }
}
