//! Schedules, lowered and executed on threads: they complete over every transport, and give the
//! bits that the order of the proof gives.

mod every_algorithm;
mod promises;
mod random;
mod running_ahead;

/// Bytes of a window where a test is not about windows.
const WINDOW: usize = 32 << 10;
