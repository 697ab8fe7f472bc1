//! One policy for mutexes whose holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic under it. For values that are valid between any two statements of a
/// holder: each change is one assignment, insertion or removal.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
