//! Fewer spins after failed ones.
//!
//! A spin for a message of another host, or of a rank that needs this core, times out, and takes
//! the core from other ranks: with four ranks on a core, seven awaited messages take a millisecond.
//! Each thread measures that itself.

use std::cell::Cell;

/// The most waits without a spin after a failed spin.
const MOST: u32 = 64;

/// The measurements of a thread.
#[derive(Clone, Copy, Default)]
struct Vain {
    /// Remaining waits without a spin.
    left: u32,
    /// The number of such waits after the last failed spin.
    length: u32,
}

impl Vain {
    fn after(self, found: bool) -> Self {
        let length = if found { 0 } else { (2 * self.length).clamp(1, MOST) };
        Self { left: length, length }
    }
}

thread_local! {
    static VAIN: Cell<Vain> = const { Cell::new(Vain { left: 0, length: 0 }) };
}

/// The result of `spin`; `None`, too, where it is left out.
pub(super) fn unless_in_vain<T>(spin: impl FnOnce() -> Option<T>) -> Option<T> {
    let vain = VAIN.get();
    if let Some(left) = vain.left.checked_sub(1) {
        VAIN.set(Vain { left, ..vain });
        return None;
    }
    let found = spin();
    VAIN.set(vain.after(found.is_some()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_in_vain_become_rare_and_one_that_finds_brings_them_back() {
        let mut spins = 0;
        for _ in 0..1000 {
            unless_in_vain(|| {
                spins += 1;
                None::<()>
            });
        }
        assert!((10..30).contains(&spins), "{spins} of 1000 waits spun");
        while unless_in_vain(|| Some(())).is_none() {}
        assert!((0..100).all(|_| unless_in_vain(|| Some(())).is_some()));
    }
}
