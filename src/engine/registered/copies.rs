//! Copies from the private memory of one rank to another: whether the ranks of a group can make
//! them.
//!
//! Ranks test that together, at the first long call that moves bytes and combines none. Each one
//! makes a beacon, and tries to read those of all others.

use crate::engine::Engine;
use crate::error::Result;
use crate::world::calls::CallRecord;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use std::io;

/// Whether the ranks of a group copy from one another's private memory. Equal on all of them.
#[derive(Debug, Default)]
pub(in crate::engine) enum PrivateCopies {
    /// Not determined: no call has needed it.
    #[default]
    Unknown,
    /// Every rank can read every other one.
    Possible(Box<ReadableRanks>),
    /// Some rank cannot, for this reason.
    Refused(String),
}

/// The memory of all ranks, for reading.
#[derive(Debug)]
pub(in crate::engine) struct ReadableRanks {
    beacon: MemoryBeacon,
    /// By rank.
    ranks: Box<[ProcessMemory]>,
}

impl PrivateCopies {
    /// The memory of `rank`.
    ///
    /// # Panics
    /// If ranks cannot copy.
    pub(super) fn memory(&self, rank: usize) -> ProcessMemory {
        match self {
            Self::Possible(readable) => readable.ranks[rank],
            _ => panic!("a rank announces memory that others cannot read"),
        }
    }

    /// Why ranks cannot copy from one another, if determined.
    pub(in crate::engine) fn objection(&self) -> Option<&str> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Withdraws this rank's announcements: the announced bytes may change from now on.
    pub(super) fn close(&self) {
        if let Self::Possible(readable) = self {
            readable.beacon.close();
        }
    }
}

impl Engine {
    /// Returns true if all ranks can copy from one another. The first time, all ranks try it: the
    /// exchange is a part of `call`.
    pub(super) fn can_copy(&mut self, call: &CallRecord) -> Result<bool> {
        if matches!(self.registrations.copies, PrivateCopies::Unknown) {
            self.registrations.copies = self.try_copies(call)?;
        }
        Ok(matches!(self.registrations.copies, PrivateCopies::Possible(_)))
    }

    fn try_copies(&mut self, call: &CallRecord) -> Result<PrivateCopies> {
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
        Ok(match (findings.into_iter().collect::<std::result::Result<Vec<()>, _>>(), beacon) {
            (Ok(_), Ok(beacon)) => {
                PrivateCopies::Possible(Box::new(ReadableRanks { beacon, ranks }))
            }
            (Err(why), _) => PrivateCopies::Refused(why),
            (Ok(_), Err(_)) => unreachable!("this rank has objected"),
        })
    }

    /// Reads the beacons of all ranks.
    ///
    /// # Errors
    /// Names the unreadable rank, and the reason.
    fn try_to_read(&self, ranks: &[ProcessMemory]) -> std::result::Result<(), String> {
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
