//! The kinds of memory that a rank allocates and frees within a step, as the allocator counts them.
//!
//! Weights, gradients and the optimizer's state stay from step to step, so their bytes are the
//! lengths of their buffers. Activations and units are freed within a step. The code that allocates
//! them names their kind, and the [allocator](maypole_trainer_kernels::counting) counts their
//! bytes, on the thread of the rank. In a program without that allocator [`counted`] is false.
//!
//! What is sharded, which collective runs where: nothing here. Cost: that of the allocator.

use maypole_trainer_kernels::counting;

/// A kind of memory that is allocated and freed within a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemoryKind {
    /// All other memory: text, work space of layers, buffers of the library.
    Other,
    /// Buffers that a forward pass allocates. Those left at its end are for the backward pass.
    Activations,
    /// Weights or gradients of whole units that a store gathers, makes or widens, and then frees.
    Units,
}

/// True if the allocator of this program counts.
pub fn counted() -> bool {
    counting::counts()
}

/// Resets the peaks of this thread to the bytes that it holds now.
pub fn reset_peaks() {
    counting::reset_peaks();
}

impl MemoryKind {
    /// Runs `work`, and counts the memory that it allocates as this kind.
    pub fn hold<R>(self, work: impl FnOnce() -> R) -> R {
        counting::with_kind(self as usize, work)
    }

    /// Returns the bytes of this kind that this thread has allocated minus those that it has freed.
    /// Only differences of two calls have a meaning: a thread may free memory of another thread.
    pub fn held(self) -> i64 {
        counting::of_thread(self as usize).live
    }

    /// Returns the greatest value of [`held`](Self::held) since [`reset_peaks`].
    pub fn most(self) -> i64 {
        counting::of_thread(self as usize).peak
    }
}
