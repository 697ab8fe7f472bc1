//! Copies from the private memory of one rank to another: whether the ranks of a group can make
//! them.
//!
//! Ranks find that out together, at the first call for which copies would pay. Each one makes a
//! beacon, and tries to read those of all others.

use crate::comm::engine::Engine;
use crate::comm::error::Result;
use crate::world::calls::CallRecord;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use serde::{Deserialize, Serialize};
use std::io;

/// Whether the ranks of a group copy from one another's private memory. Equal on all of them.
#[derive(Debug, Default)]
pub(in crate::comm::engine) enum PrivateCopies {
    /// No call has needed to know.
    #[default]
    Unknown,
    /// Every rank can read every other one.
    Possible(Box<ReadableRanks>),
    /// Some rank cannot, for this reason.
    Refused(String),
}

/// The memory of all ranks, for reading.
#[derive(Debug)]
pub(in crate::comm::engine) struct ReadableRanks {
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

    /// Why ranks cannot copy from one another, if that is known.
    pub(in crate::comm::engine) fn objection(&self) -> Option<&str> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Tells all ranks that what this one has announced may change from now on.
    pub(super) fn close(&self) {
        if let Self::Possible(readable) = self {
            readable.beacon.close();
        }
    }
}

/// What a rank tells the others about its memory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct MemoryNotice {
    pid: u32,
    beacon: u64,
    mark: u64,
}

impl Engine {
    /// Returns true if all ranks can copy from one another. The first time, all ranks find out: the
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
        let ProcessMemory { pid, beacon: at, mark } = memory;
        let notice = MemoryNotice { pid, beacon: at, mark };
        let ranks: Vec<ProcessMemory> = self
            .tell_all(call, &notice)?
            .into_iter()
            .map(|MemoryNotice { pid, beacon, mark }| ProcessMemory { pid, beacon, mark })
            .collect();
        let objection = match &beacon {
            Err(error) => Some(format!("rank {} has no random numbers: {error}", self.rank)),
            Ok(_) => ranks.iter().enumerate().find_map(|(rank, memory)| {
                let error = memory.check().err()?;
                let remedy = match error.kind() {
                    io::ErrorKind::PermissionDenied => "; 'maypole doctor' says what forbids it",
                    _ => "",
                };
                let me = self.rank;
                Some(format!("rank {me} cannot read the memory of rank {rank}: {error}{remedy}"))
            }),
        };
        let mut objections = self.tell_all(call, &objection)?.into_iter().flatten();
        Ok(match (objections.next(), beacon) {
            (None, Ok(beacon)) => {
                PrivateCopies::Possible(Box::new(ReadableRanks { beacon, ranks: ranks.into() }))
            }
            (Some(why), _) => PrivateCopies::Refused(why),
            (None, Err(_)) => unreachable!("this rank has objected"),
        })
    }

    /// Tells all ranks `mine` within `call`, and returns what all tell, by rank.
    fn tell_all<T>(&mut self, call: &CallRecord, mine: &T) -> Result<Vec<T>>
    where
        T: Serialize + for<'a> Deserialize<'a>,
    {
        let blob = postcard::to_stdvec(mine).expect("plain data can be serialized");
        let blobs = self.exchange(call.clone(), blob)?;
        let told = blobs.iter().enumerate().map(|(rank, blob)| {
            let unreadable =
                |error| format!("what rank {rank} tells of its memory is unreadable: {error}");
            postcard::from_bytes(blob).map_err(unreadable)
        });
        let told: std::result::Result<Vec<T>, String> = told.collect();
        told.map_err(|why| self.unconnected(call.call.clone(), why))
    }
}
