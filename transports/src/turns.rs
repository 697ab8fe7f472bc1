//! The seam for threads that take turns, on a clock of their own.
//!
//! A world for tests lets one thread run at a time, chooses the next one, and counts time in turns, so
//! that runs are reproducible. The crate `maypole-testing` is such a world. All code that waits,
//! reads the time or starts a thread calls this module. A thread that takes no turns runs freely,
//! by the time of the system.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest duration that is added to the clock, so that the sum does not overflow: 100 years.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

thread_local! {
    /// The turns of this thread, if it takes any.
    static CURRENT: RefCell<Option<Arc<dyn TurnTaking>>> = const { RefCell::new(None) };
}

/// The turns of one thread.
///
/// A method that passes the turn on may end the thread by a panic.
pub trait TurnTaking: Any + Debug + Send + Sync {
    /// Returns the time of the world.
    fn now(&self) -> Instant;

    /// Begins a wait. Other threads see all earlier writes of this thread.
    fn begin_wait(&self);

    /// Returns how often a wait polls in this turn.
    fn polls(&self) -> u32;

    /// Passes the turn on. Returns when this thread has it again, because something has happened or
    /// `deadline` has passed.
    fn idle(&self, deadline: Option<Instant>);

    /// Records an event that any thread of the world may wait for. Links, and work of one thread of
    /// a rank for another, need no such record.
    fn note_change(&self);

    /// True if the rank of this thread was dropped. Its later writes are invisible to others.
    fn is_dropped(&self) -> bool;

    /// Adds a thread of the same rank.
    fn add_thread(&self) -> Box<dyn AddedThread>;
}

/// A thread that was added to a world and has not begun.
pub trait AddedThread: Debug + Send {
    /// Lets others wait for the end of this thread.
    fn end(&self) -> Box<dyn ThreadEnd>;

    /// Makes the calling thread this thread, and waits for its first turn. It takes turns until the
    /// returned value is dropped.
    fn enter(self: Box<Self>) -> Box<dyn Any>;
}

/// The end of a thread; see [`AddedThread::end`].
pub trait ThreadEnd: Debug + Send + Sync {
    /// Waits until the thread takes no more turns. Returns immediately if the calling thread takes
    /// no turns in the same world. Never panics.
    fn wait(&self);
}

/// Sets the turns of the calling thread; `None` if it takes no more.
pub fn set_current(turns: Option<Arc<dyn TurnTaking>>) {
    CURRENT.set(turns);
}

/// Returns the turns of the calling thread; `None` if it takes none.
pub fn current() -> Option<Arc<dyn TurnTaking>> {
    // A thread that ends drops its local values, and a stream may be among them.
    CURRENT.try_with(|turns| turns.borrow().clone()).ok().flatten()
}

/// Returns the time: that of the calling thread's world if it takes turns, else that of the system.
pub fn now() -> Instant {
    current().map_or_else(Instant::now, |turns| turns.now())
}

/// See [`TurnTaking::begin_wait`]. Does nothing if the calling thread takes no turns.
pub fn begin_wait() {
    if let Some(turns) = current() {
        turns.begin_wait();
    }
}

/// See [`TurnTaking::note_change`]. Does nothing if the calling thread takes no turns.
pub fn note_change() {
    if let Some(turns) = current() {
        turns.note_change();
    }
}

/// See [`TurnTaking::is_dropped`]. False if the calling thread takes no turns.
pub fn is_dropped() -> bool {
    current().is_some_and(|turns| turns.is_dropped())
}

/// Polls `ready`, one turn after the other, until it returns a value. Returns `None` if the calling
/// thread takes no turns, else the value, or the error if `deadline` has passed.
pub fn wait<T>(
    deadline: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<Result<T, DeadlinePassed>> {
    let turns = current()?;
    turns.begin_wait();
    loop {
        for _ in 0..turns.polls() {
            if let Some(value) = ready() {
                return Some(Ok(value));
            }
        }
        if deadline.is_some_and(|deadline| turns.now() >= deadline) {
            return Some(Err(DeadlinePassed));
        }
        turns.idle(deadline);
    }
}

/// Polls `ready` until it returns a value, or `deadline` has passed. Sleeps for `pause` between two
/// polls. A thread that takes turns polls by turns instead.
pub fn poll_until<T>(
    deadline: Instant,
    pause: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    if let Some(ended) = wait(Some(deadline), &mut ready) {
        return ended.ok();
    }
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
    }
}

/// The deadline of a [`wait`] has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeadlinePassed;
