//! Who is told what an executor does.

/// Told what an executor does, as it does it. The executor is compiled for [`Nobody`] and for
/// whoever else there is, so a run that nobody watches costs nothing for it.
pub trait Watch {
    /// What had to be awaited is there; `what` says what it was.
    fn awaited(&mut self, what: impl FnOnce() -> Awaited);

    /// Window `window` of fold `op` is done: stored, published and posted.
    fn folded(&mut self, op: usize, window: u32);
}

/// What a fold waits for. Ranks are those of the executor's world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Awaited {
    /// What a rank sends.
    Arrival {
        /// Which rank.
        from: usize,
    },
    /// Room on the board for a publication: its readers must have read older ones.
    Room,
    /// That what was posted to a rank has left, because its place is to be written or is the
    /// caller's again.
    Departure {
        /// Which rank.
        to: usize,
    },
}

/// Whoever lends itself watches.
impl<W: Watch> Watch for &mut W {
    #[inline(always)]
    fn awaited(&mut self, what: impl FnOnce() -> Awaited) {
        (**self).awaited(what);
    }

    #[inline(always)]
    fn folded(&mut self, op: usize, window: u32) {
        (**self).folded(op, window);
    }
}

/// Does not watch, and takes no room.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Watch for Nobody {
    #[inline(always)]
    fn awaited(&mut self, _: impl FnOnce() -> Awaited) {}

    #[inline(always)]
    fn folded(&mut self, _: usize, _: u32) {}
}
