//! The kinds of memory of a rank that come and go within a step, as the allocator counts them.
//!
//! Weights, gradients and the optimizer's state stay from step to step, so the lengths of their
//! buffers say what they take. Activations and units do not. So whoever makes them names their
//! kind, and the [allocator](maypole_kernels::memory::counting) counts their bytes, on the thread
//! of the rank. A program without that allocator counts nothing, and [`counted`] is false.
//!
//! What is sharded, which collective runs where: nothing here. Cost: that of the allocator.

use maypole_kernels::memory::counting;

/// A kind of memory that comes and goes within a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemoryKind {
    /// What is not told apart: text, work space of layers, buffers of the library.
    Other,
    /// What a forward pass makes. What is left of it at the end waits for the backward pass.
    Activations,
    /// Units of weights or gradients that a store gathers, makes or widens, and drops again.
    Units,
}

/// True if the allocator of this program counts.
pub fn counted() -> bool {
    counting::counts()
}

/// From now on the peaks are those of what this thread does next.
pub fn reset_peaks() {
    counting::reset_peaks();
}

impl MemoryKind {
    /// Does `work`. What it allocates is of this kind.
    pub fn hold<R>(self, work: impl FnOnce() -> R) -> R {
        counting::with_kind(self as usize, work)
    }

    /// Bytes of this kind that this thread has allocated and not freed. Only differences mean
    /// something.
    pub fn held(self) -> i64 {
        counting::of_thread(self as usize).live
    }

    /// The most that [`held`](Self::held) was since [`reset_peaks`].
    pub fn most(self) -> i64 {
        counting::of_thread(self as usize).peak
    }
}
