//! The end of boards: memory of other processes is closed, and a rank's own memory is freed when no
//! other process has it open.
//!
//! The driver's manual forbids to free memory that another process has open. A rank that leaves waits for
//! no other rank, so its board goes to a list of the process. A thread polls the list while it is
//! not empty, and does the steps that need no wait.

use super::arena::Reached;
use super::board::DeviceBoard;
use super::memory::{DeviceMemory, LentMemory};
use super::order::{BesideCapture, ContextWork, WorkOrder};
use super::spares::{self, Openers};
use super::use_table::{CLOSED, ENDED, UseTable};
use crate::lock;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// A board that its rank has left.
struct LeftBoard {
    order: WorkOrder,
    /// Resources of the board's calls. `None` once these have ended.
    used: Option<Kept>,
    /// The memory of the other ranks, or that of the host, until it is closed.
    others: Vec<Reached>,
    is_closed: bool,
    /// The memory of this rank, while other ranks may use it.
    memory: Option<Arc<DeviceMemory>>,
    table: Option<Arc<UseTable>>,
}

/// Other resources of a board's calls.
pub type Kept = Box<dyn Any + Send>;

struct LeftBoards {
    boards: Vec<LeftBoard>,
    /// A thread polls them.
    is_watched: bool,
}

static LEFT: Mutex<LeftBoards> = Mutex::new(LeftBoards { boards: Vec::new(), is_watched: false });
/// Held by the thread that ends boards.
static ENDING: Mutex<()> = Mutex::new(());

/// The pause of the thread between two polls: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl LeftBoard {
    /// Does the steps that need no wait. True once all are done.
    fn advance(&mut self) -> bool {
        if self.used.is_some() && !self.end_calls() {
            return false;
        }
        if self.memory.is_some()
            && self.table.as_ref().is_none_or(|table| table.have_come_to(ENDED))
        {
            // It is kept for the next group, and freed when others have closed it.
            if let (Some(memory), Some(table)) = (self.memory.take(), &self.table) {
                memory.add_openers(Arc::clone(table) as Arc<dyn Openers>);
            }
        }
        if !self.is_closed && self.close_others() {
            self.table.iter().for_each(|table| table.advance(CLOSED));
            self.is_closed = true;
        }
        self.memory.is_none() && self.is_closed
    }

    /// Frees the resources of the calls, if they have ended.
    fn end_calls(&mut self) -> bool {
        if !self.order.is_drained() {
            return false;
        }
        let work = ContextWork::of(self.order.context());
        let _beside = BesideCapture::begin();
        let _ = self.order.context().bind_to_thread();
        // Memory of pools is freed in stream order. Other memory may have to wait.
        let has_pools = self.order.context().has_async_alloc();
        if has_pools {
            self.used = None;
        } else if work.while_idle(|| self.used = None).is_none() {
            return false;
        }
        self.table.iter().for_each(|table| table.advance(ENDED));
        true
    }

    /// Closes memory of other processes and of the host, if nothing waits on the GPU.
    fn close_others(&mut self) -> bool {
        let Self { others, order, .. } = self;
        // That of a GPU of this process needs no call of the driver.
        others.retain(|reached| !matches!(reached, Reached::Here(_)));
        let work = ContextWork::of(order.context());
        others.is_empty() || work.while_idle(|| others.clear()).is_some()
    }
}

impl DeviceBoard {
    /// Leaves the group for good: the board's calls end by themselves. Then opened memory is
    /// closed, and its own memory and `kept` are freed. Does not block.
    ///
    /// The returned handle reports completion.
    pub fn leave(self, kept: Kept) -> LeftMemory {
        let Self { order, memory, table, mut others, slots, words, locals, .. } = self;
        others.extend(slots.into_iter().flat_map(|slots| slots.near).flatten());
        leave((order, others), Box::new((locals, words, kept)), memory, table)
    }
}

/// Leaves a rank's unfinished part of a board.
pub(super) fn leave(
    (order, others): (WorkOrder, Vec<Reached>),
    used: Kept,
    memory: LentMemory,
    table: Option<Arc<UseTable>>,
) -> LeftMemory {
    let memory = ManuallyDrop::into_inner(memory);
    let watched = LeftMemory(memory.as_ref().map(Arc::downgrade));
    let used = Some(used);
    lock(&LEFT).boards.push(LeftBoard { order, used, others, is_closed: false, memory, table });
    end_left_boards();
    watched
}

/// Memory of a rank that has left.
#[derive(Debug, Default)]
pub struct LeftMemory(Option<Weak<DeviceMemory>>);

impl LeftMemory {
    /// True once no rank uses the memory.
    pub fn is_unused(&self) -> bool {
        self.0.as_ref().is_none_or(|memory| memory.strong_count() == 0)
    }

    /// Frees it and everything else that can be freed. May wait for another thread that does so.
    pub fn free(self) {
        let ending = lock(&ENDING);
        if end_some(&ending) {
            watch();
        }
    }
}

/// Frees resources of departed ranks of this process, as far as that needs no wait. A thread frees
/// the rest later.
pub fn end_left_boards() {
    if try_to_end() {
        watch();
    }
}

/// True if something is left to be done, or another thread does it.
fn try_to_end() -> bool {
    ENDING.try_lock().map_or(true, |ending| end_some(&ending))
}

/// True if something is left to be done.
fn end_some(_ending: &MutexGuard<'_, ()>) -> bool {
    let mut boards = std::mem::take(&mut lock(&LEFT).boards);
    // Without the lock: a rank may leave meanwhile.
    boards.retain_mut(|board| !board.advance());
    let mut left = lock(&LEFT);
    left.boards.append(&mut boards);
    let has_boards = !left.boards.is_empty();
    drop(left);
    spares::free_on_idle_gpus() || has_boards
}

fn watch() {
    if std::mem::replace(&mut lock(&LEFT).is_watched, true) {
        return;
    }
    let look = || {
        let mut pause = FIRST_PAUSE;
        loop {
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
            let is_busy = try_to_end();
            let mut left = lock(&LEFT);
            if !is_busy && left.boards.is_empty() {
                left.is_watched = false;
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("maypole-memory".to_owned()).spawn(look);
    if started.is_err() {
        // The next group that is made or left polls again.
        lock(&LEFT).is_watched = false;
    }
}
