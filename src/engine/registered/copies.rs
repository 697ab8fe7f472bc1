//! Copies from the private memory of one rank to another: whether the ranks of a group can make
//! them.
//!
//! Ranks find that out together, at the first call for which copies would pay. Each one makes a
//! beacon, and tries to read those of all others. It also measures what copies from the next rank
//! cost: on some virtual machines the kernel takes several times as long to reach a page of another
//! process as on most machines.

use crate::engine::Engine;
use crate::error::Result;
use crate::tuner::{CostTable, Costs};
use crate::world::calls::CallRecord;
use maypole_kernels::ViewMut;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// Bytes of the copies that are measured: as many as one system call copies.
const SAMPLE: usize = 256 << 10;
/// How often a copy is measured. The least time counts, because a rank may be interrupted.
const SAMPLES: usize = 12;

/// Whether the ranks of a group copy from one another's private memory. Equal on all of them.
#[derive(Debug, Default)]
pub(in crate::engine) enum PrivateCopies {
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

    /// Why ranks cannot copy from one another, if that is known.
    pub(in crate::engine) fn objection(&self) -> Option<&str> {
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
    /// Where [`SAMPLE`] bytes lie that others may copy.
    sample: u64,
}

impl MemoryNotice {
    fn memory(&self) -> ProcessMemory {
        ProcessMemory { pid: self.pid, beacon: self.beacon, mark: self.mark }
    }

    /// Returns picoseconds of a copy, and of a KiB in it.
    fn measure(&self) -> io::Result<(u64, u64)> {
        let memory = self.memory();
        let mut bytes = vec![0u8; SAMPLE];
        let mut least = |len: usize| {
            (0..SAMPLES).try_fold(u64::MAX, |least, _| {
                let start = Instant::now();
                memory.read(self.sample, ViewMut::of(&mut bytes[..len]))?;
                memory.check()?;
                io::Result::Ok(least.min(start.elapsed().as_nanos() as u64 * 1000))
            })
        };
        let (short, long) = (least(8)?, least(SAMPLE)?);
        Ok((short, long.saturating_sub(short) / (SAMPLE as u64 >> 10)))
    }
}

/// What a rank found when it tried to copy: the costs, or why it cannot.
type Finding = std::result::Result<(u64, u64), String>;

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
        // It lives until all ranks have told what they found. Its address is exposed, or the compiler
        // takes it for memory that nobody reads.
        let sample = vec![1u8; SAMPLE];
        let address = sample.as_ptr().expose_provenance() as u64;
        let notice = MemoryNotice { pid, beacon: at, mark, sample: address };
        let notices = self.tell_all(call.clone(), &notice)?;
        let finding = match &beacon {
            Err(error) => Err(format!("rank {} has no random numbers: {error}", self.rank)),
            Ok(_) => self.try_to_read(&notices),
        };
        let findings: Finding = self.tell_all(call.clone(), &finding)?.into_iter().try_fold(
            (0, 0),
            |(alpha, beta): (u64, u64), finding| {
                finding.map(|(short, kib)| (alpha.max(short), beta.max(kib)))
            },
        );
        Ok(match (findings, beacon) {
            (Ok(costs), Ok(beacon)) => {
                self.price_copies(costs);
                let ranks = notices.iter().map(MemoryNotice::memory).collect();
                PrivateCopies::Possible(Box::new(ReadableRanks { beacon, ranks }))
            }
            (Err(why), _) => PrivateCopies::Refused(why),
            (Ok(_), Err(_)) => unreachable!("this rank has objected"),
        })
    }

    /// Reads the beacons of all ranks, and measures copies from the next one.
    fn try_to_read(&self, notices: &[MemoryNotice]) -> Finding {
        let me = self.rank;
        let unreadable = |rank: usize, error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "; 'maypole doctor' says what forbids it",
                _ => "",
            };
            format!("rank {me} cannot read the memory of rank {rank}: {error}{remedy}")
        };
        for (rank, notice) in notices.iter().enumerate() {
            notice.memory().check().map_err(|error| unreadable(rank, error))?;
        }
        let next = (me + 1) % notices.len();
        notices[next].measure().map_err(|error| unreadable(next, error))
    }

    /// Prices copies as the slowest rank measured them, unless `maypole tune` has measured them. Then
    /// all calls are prepared anew, on all ranks: by the new price they may run in another way, and
    /// some ranks may have dropped programs that others keep.
    fn price_copies(&mut self, (alpha, beta): (u64, u64)) {
        let copy = &mut self.conditions.costs.copy;
        if *copy == CostTable::BUILT_IN.copy {
            *copy = Costs { alpha, beta, gamma: 0 };
            self.calls.clear(self.executor.locals());
        }
    }
}
