//! Observers, to which an executor reports while it runs.

/// Receives a call for each wait and each fold of a run.
///
/// The executor is compiled once for [`NoObserver`] and once for each other observer, so a run that
/// is not observed has no overhead.
pub trait RunObserver {
    /// Called when a wait has ended; `awaited` returns the event that it was for.
    fn awaited(&mut self, awaited: impl FnOnce() -> Awaited);

    /// Called when window `window` of fold `fold` is stored, published and posted.
    fn folded(&mut self, fold: usize, window: u32);
}

/// The event that a fold waits for. Ranks are those of the executor's world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Awaited {
    /// The data of another rank.
    Arrival {
        /// The rank that sends it.
        from: usize,
    },
    /// Room on the board for a publication: its readers must have consumed older ones.
    Room,
    /// A posted message must have left, because its memory is about to be overwritten or given back
    /// to the caller.
    Departure {
        /// The rank that it is sent to.
        to: usize,
    },
}

/// Ignores all calls, and compiles to nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl RunObserver for NoObserver {
    #[inline(always)]
    fn awaited(&mut self, _: impl FnOnce() -> Awaited) {}

    #[inline(always)]
    fn folded(&mut self, _: usize, _: u32) {}
}
