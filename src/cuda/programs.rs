//! Programs in the memory of a GPU, and those that graphs keep.

use crate::element::ReduceOp;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::recent::RecentlyUsed;
use crate::engine::device::DeviceLowered;
use cudarc::driver::{CudaFunction, CudaStream};
use maypole_kernels::cuda::CudaError;
use maypole_kernels::packed::ShortProgram;
use maypole_transports::cuda::{BesideCapture, CodeShelf, DeviceCode, DeviceScratch, Lent, Room};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) struct Prepared {
    pub(super) lowered: DeviceLowered,
    pub(super) kernel: CudaFunction,
    pub(super) way: Way,
}

/// A collective, and the memory that it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentCall<'a> {
    pub(super) call: CollectiveCall,
    pub(super) op: ReduceOp,
    /// The factor of a sum of products, if it is not in `op`.
    pub(super) factor: Option<Lent<'a>>,
    pub(super) input: Lent<'a>,
    pub(super) output: Lent<'a>,
}

/// A call that can be started without a wait: see [`Comm::make_ready`](super::Comm::make_ready).
pub struct StartableCall<'a> {
    pub(super) lent: LentCall<'a>,
    pub(super) prepared: Arc<Prepared>,
}

impl std::fmt::Debug for StartableCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StartableCall({})", self.lent.call)
    }
}

/// How a call runs on the GPU.
pub(super) enum Way {
    /// A kernel walks its program, over the mailboxes of a room.
    Walk { code: Box<DeviceCode>, room: Room, longest: u64 },
    /// A kernel makes the one exchange that its program is.
    Short(ShortProgram),
}

impl Prepared {
    /// Bytes that it takes in the cache.
    pub(super) fn bytes(&self) -> usize {
        let program = if let Way::Walk { code, .. } = &self.way { code.bytes() } else { 0 };
        size_of::<Self>() + program + self.lowered.record.memory()
    }
}

/// The cache of programs for later calls, within a budget in bytes. Other ranks may keep those of
/// other calls.
#[derive(Default)]
pub(super) struct KeptPrograms {
    /// By call without its placement, which is local to a rank: the programs apart and in place.
    recent: RecentlyUsed<CollectiveCall, [Arc<Prepared>; 2]>,
    /// Dropped programs. Their memory is freed after the work that uses it.
    dropped: Vec<[Arc<Prepared>; 2]>,
    /// Working memory that was too short, until it can be freed.
    pub(super) outgrown: Vec<DeviceScratch>,
}

impl KeptPrograms {
    pub(super) fn get(&mut self, call: &CollectiveCall) -> Option<&[Arc<Prepared>; 2]> {
        self.recent.get(call)
    }

    /// Keeps the programs of a new call, which take `bytes` bytes of `budget`.
    pub(super) fn add(
        &mut self,
        call: CollectiveCall,
        programs: [Arc<Prepared>; 2],
        bytes: usize,
        budget: usize,
    ) {
        self.make_room(bytes, budget);
        self.recent.insert(call, programs, bytes);
    }

    /// Drops programs until so many bytes fit in `budget`, first those that were not used for the longest time.
    pub(super) fn make_room(&mut self, bytes: usize, budget: usize) {
        while let Some(oldest) = self.recent.evict(bytes, budget) {
            self.dropped.push(oldest);
        }
    }

    /// Frees the memory of programs that were dropped, in the order of the rank's own stream.
    pub(super) fn free_dropped(&mut self) {
        self.dropped.clear();
        self.outgrown.clear();
    }
}

/// Programs that a graph may run again: they are cached as long as the rank exists, and so is the
/// memory of their calls. A program that is captured several times is cached once.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) calls: HashMap<CollectiveCall, Arc<Prepared>>,
    /// Those that new graphs do not use.
    old: Vec<Arc<Prepared>>,
    pub(super) messages: HashMap<(u64, bool), Arc<DeviceCode>>,
    /// One for each captured call: its staging buffer and its working memory. A replay concurrent
    /// with another call must not share them: only walks over the same mailboxes detect an overlap,
    /// and each of their lanes for itself.
    memories: Vec<DeviceScratch>,
}

impl Captured {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.messages.is_empty() && self.old.is_empty()
    }

    /// Calls that are captured from now on get other programs.
    pub(super) fn forget(&mut self) {
        self.old.extend(self.calls.drain().map(|(_, program)| program));
    }

    /// Makes memory of `bytes` bytes for a call that is captured. It is allocated on the stream `aside`,
    /// which does nothing else: on the stream of the call it would be memory of the graph.
    pub(super) fn make_memory(
        &mut self,
        bytes: usize,
        aside: &Arc<CudaStream>,
    ) -> Result<Lent<'_>, CudaError> {
        if bytes == 0 {
            return Ok(Lent::EMPTY);
        }
        let _beside = BesideCapture::begin();
        let mut memory = DeviceScratch::new(aside);
        memory.grow(bytes)?;
        aside.synchronize().map_err(CudaError::of("allocating for a captured call"))?;
        self.memories.push(memory);
        Ok(self.memories.last().map_or(Lent::EMPTY, DeviceScratch::lend))
    }
}

/// The limits of cached programs of messages, and of those that graphs have captured.
const MOST_MESSAGES: usize = 256;

/// The programs of messages by length, for each end. Not all ranks meet for a message, so a new program
/// may wait for nothing.
pub(super) struct MessagePrograms {
    /// By the length, and whether it is the end that sends. Each counts as one.
    pub(super) by_length: RecentlyUsed<(u64, bool), Arc<DeviceCode>>,
    shelf: CodeShelf,
}

impl MessagePrograms {
    /// No programs yet, for work on `stream`.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Self, CudaError> {
        let shelf = CodeShelf::new(stream, 2 * MOST_MESSAGES)?;
        Ok(Self { by_length: RecentlyUsed::default(), shelf })
    }

    /// Copies the program `bytes` to the GPU and keeps it, in the place of the one that was not used for the
    /// longest time.
    pub(super) fn add(
        &mut self,
        key: (u64, bool),
        bytes: &[u8],
    ) -> Result<Arc<DeviceCode>, CudaError> {
        let code = Arc::new(self.shelf.load(bytes)?);
        while self.by_length.evict(1, MOST_MESSAGES).is_some() {}
        self.by_length.insert(key, Arc::clone(&code), 1);
        Ok(code)
    }
}

/// Copies a program to the GPU for calls that are captured, on a stream that does nothing else.
pub(super) fn load_aside(aside: &Arc<CudaStream>, bytes: &[u8]) -> Result<DeviceCode, CudaError> {
    let code = DeviceCode::load(aside, bytes)?;
    aside.synchronize().map_err(CudaError::of("copying a program to a GPU"))?;
    Ok(code)
}
