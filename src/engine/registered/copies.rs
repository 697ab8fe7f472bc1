//! Copies from the private memory of one rank to another: whether the ranks of a group can make
//! them.
//!
//! Ranks find that out together, at the first call for which copies would pay. Each one makes a
//! beacon, and tries to read those of all others. It also measures what copies from the next rank
//! cost: on some virtual machines the kernel takes several times as long to reach a page of another
//! process as on most machines.

use crate::engine::Engine;
use crate::error::Result;
use crate::tuner::{CostTable, Costs, LENGTHS};
use crate::world::calls::CallRecord;
use maypole_kernels::ViewMut;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// How often a copy is measured. The least time counts, because a rank may be interrupted.
const SAMPLES: usize = 6;

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
    /// Where bytes lie that others may copy: a rank's part of the longest of [`LENGTHS`].
    sample: u64,
}

impl MemoryNotice {
    fn memory(&self) -> ProcessMemory {
        ProcessMemory { pid: self.pid, beacon: self.beacon, mark: self.mark }
    }

    /// Returns picoseconds of a copy, and of a KiB in copies of a part of each of [`LENGTHS`] among `world` ranks.
    fn measure(&self, world: usize) -> io::Result<CopyCosts> {
        let memory = self.memory();
        let mut bytes = vec![0u8; longest_part(world)];
        let mut least = |len: usize| {
            (0..SAMPLES).try_fold(u64::MAX, |least, _| {
                let start = Instant::now();
                memory.read(self.sample, ViewMut::of(&mut bytes[..len]))?;
                io::Result::Ok(least.min(start.elapsed().as_nanos() as u64 * 1000))
            })
        };
        let short = least(8)?;
        let mut costs = (short, [0; LENGTHS.len()]);
        for (length, kib) in LENGTHS.into_iter().zip(&mut costs.1) {
            let part = length.div_ceil(world);
            *kib = least(part)?.saturating_sub(short) * 1024 / part as u64;
        }
        Ok(costs)
    }
}

/// Bytes of a rank's part of the longest of [`LENGTHS`].
fn longest_part(world: usize) -> usize {
    LENGTHS[LENGTHS.len() - 1].div_ceil(world)
}

/// Picoseconds of a copy, and of a KiB in it, by length.
type CopyCosts = (u64, [u64; LENGTHS.len()]);

/// What a rank found when it tried to copy: the costs, or why it cannot.
type Finding = std::result::Result<CopyCosts, String>;

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
        let sample = vec![1u8; longest_part(self.boards.world())];
        let address = sample.as_ptr().expose_provenance() as u64;
        let notice = MemoryNotice { pid, beacon: at, mark, sample: address };
        let notices = self.tell_all(call.clone(), &notice)?;
        let finding = match &beacon {
            Err(error) => Err(format!("rank {} has no random numbers: {error}", self.rank)),
            Ok(_) => self.try_to_read(&notices),
        };
        let findings: Finding = self.tell_all(call.clone(), &finding)?.into_iter().try_fold(
            CopyCosts::default(),
            |(alpha, betas), finding| {
                let slower = |(short, kibs): CopyCosts| {
                    (alpha.max(short), std::array::from_fn(|at| betas[at].max(kibs[at])))
                };
                finding.map(slower)
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
        notices[next].measure(notices.len()).map_err(|error| unreadable(next, error))
    }

    /// Prices copies as the slowest rank measured them, unless `maypole tune` has measured them. Then
    /// all calls are prepared anew, on all ranks: by the new price they may run in another way, and
    /// some ranks may have dropped programs that others keep.
    fn price_copies(&mut self, (alpha, betas): CopyCosts) {
        let copy = &mut self.conditions.costs.copy;
        if *copy == CostTable::BUILT_IN.copy {
            *copy = Costs { alpha, beta: betas[1], gamma: 0 };
            self.conditions.slots.note_copies(betas);
            self.calls.clear(self.executor.locals());
        }
    }
}
