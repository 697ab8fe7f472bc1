//! Copies from the private memory of one rank to another: whether the ranks of a group can make
//! them.
//!
//! Ranks test that together, at the first long call that moves bytes and combines none. Each one
//! makes a beacon, and tries to read those of all others.

use crate::engine::Engine;
use crate::error::Result as CallResult;
use crate::world::calls::CallRecord;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use std::io;

/// Whether the ranks of a group copy from one another's private memory, which every rank can then read;
/// else the reason why some rank cannot. Equal on all of them. `None` while no call has needed it.
#[derive(Debug, Default)]
pub(crate) struct PrivateCopies(Option<Result<ReadableRanks, String>>);

/// The memory of all ranks, for reading.
#[derive(Debug)]
struct ReadableRanks {
    beacon: MemoryBeacon,
    /// By rank.
    ranks: Box<[ProcessMemory]>,
}

impl PrivateCopies {
    fn readable(&self) -> Option<&ReadableRanks> {
        self.0.as_ref()?.as_ref().ok()
    }

    /// The memory of `rank`.
    ///
    /// # Panics
    /// If ranks cannot copy.
    pub(super) fn memory(&self, rank: usize) -> ProcessMemory {
        self.readable().expect("a rank announces memory that others can read").ranks[rank]
    }

    /// Why ranks cannot copy from one another, if determined.
    pub(crate) fn objection(&self) -> Option<&str> {
        self.0.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Withdraws this rank's announcements: the announced bytes may change from now on.
    pub(super) fn close(&self) {
        self.readable().inspect(|readable| readable.beacon.close());
    }
}

impl Engine {
    /// Returns true if all ranks can copy from one another. The first time, all ranks try it: the
    /// exchange is a part of `call`.
    pub(super) fn can_copy(&mut self, call: &CallRecord) -> CallResult<bool> {
        if self.registrations.copies.0.is_none() {
            self.registrations.copies.0 = Some(self.try_copies(call)?);
        }
        Ok(self.registrations.copies.readable().is_some())
    }

    fn try_copies(&mut self, call: &CallRecord) -> CallResult<Result<ReadableRanks, String>> {
        let beacon = MemoryBeacon::new();
        let memory = beacon.as_ref().map(MemoryBeacon::memory).unwrap_or_default();
        let mine = (memory.pid, memory.beacon, memory.mark);
        let ranks: Vec<(u32, u64, u64)> = self.tell_all(call.clone(), &mine)?;
        let of = |(pid, beacon, mark)| ProcessMemory { pid, beacon, mark };
        let ranks: Box<[_]> = ranks.into_iter().map(of).collect();
        let finding = match &beacon {
            Err(error) => Err(format!("rank {} has no random numbers: {error}", self.rank)),
            Ok(_) => self.try_to_read(&ranks),
        };
        let findings = self.tell_all(call.clone(), &finding)?;
        let all: Result<(), String> = findings.into_iter().collect();
        Ok(all.map(|()| {
            let beacon = beacon.expect("this rank has not objected");
            ReadableRanks { beacon, ranks }
        }))
    }

    /// Reads the beacons of all ranks.
    ///
    /// # Errors
    /// Names the unreadable rank, and the reason.
    fn try_to_read(&self, ranks: &[ProcessMemory]) -> Result<(), String> {
        let me = self.rank;
        let unreadable = |rank: usize, error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "; 'maypole doctor' says what forbids it",
                _ => "",
            };
            format!("rank {me} cannot read the memory of rank {rank}: {error}{remedy}")
        };
        let read = |(rank, memory): (usize, &ProcessMemory)| {
            memory.check().map_err(|error| unreadable(rank, error))
        };
        ranks.iter().enumerate().try_for_each(read)
    }
}
