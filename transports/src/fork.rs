//! The process that made a value. A forked child has a copy of its parent's memory, but neither its
//! threads nor the memory that it shares with others, and it must not use its sockets.
//!
//! A child must not act as its parent, so each value of one process keeps its [`OwnerProcess`]. The
//! check whether that is still this process is one load and one comparison: the kernel wipes the
//! word in the child (`MADV_WIPEONFORK`), however the child was made.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The process that made a value.
///
/// ```
/// use maypole_transports::fork::OwnerProcess;
/// let owner = OwnerProcess::current();
/// assert!(owner.is_current());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OwnerProcess {
    /// The number of this process in its line of forks, or zero right after a fork.
    word: &'static AtomicU64,
    number: u64,
}

/// The next number. A child counts on from its parent's numbers, so it uses none of them again.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// The page of the word; null until it is first needed.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// The word where the kernel cannot wipe a page. A handler wipes it.
static WORD: AtomicU64 = AtomicU64::new(0);

impl OwnerProcess {
    /// Returns this process.
    pub fn current() -> Self {
        let word = word();
        let number = match word.load(Ordering::Relaxed) {
            0 => {
                let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
                let claimed = word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
                claimed.map_or_else(|other| other, |_| fresh)
            }
            number => number,
        };
        Self { word, number }
    }

    /// Returns true in the process that made this value, and false in every process that was
    /// forked from it since.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

fn word() -> &'static AtomicU64 {
    let known = PAGE.load(Ordering::Acquire);
    // SAFETY: only `map` sets the pointer, to a word that is never freed.
    if let Some(known) = unsafe { known.as_ref() } { known } else { map() }
}

/// Makes the word, unless another thread does so first.
#[cold]
fn map() -> &'static AtomicU64 {
    let fresh = wiped_page().unwrap_or_else(handled_word);
    let set =
        PAGE.compare_exchange(null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
    // A thread that loses the race leaves its page mapped: one page, once.
    let word = set.map_or_else(|known| known, |_| fresh.as_ptr());
    // SAFETY: the word is never freed.
    unsafe { &*word }
}

/// A zeroed page that the kernel wipes in forked children.
#[cfg(not(miri))]
fn wiped_page() -> Option<NonNull<AtomicU64>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    const PAGE_BYTES: usize = 4096;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at a place of the kernel's choosing touches nothing that exists.
    let start =
        unsafe { mmap_anonymous(null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the range is the mapping just made; the advice changes nothing in this process.
    unsafe { madvise(start, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    NonNull::new(start.cast())
}

#[cfg(miri)]
fn wiped_page() -> Option<NonNull<AtomicU64>> {
    None
}

/// A word that the C library's `fork` wipes in the child.
fn handled_word() -> NonNull<AtomicU64> {
    #[cfg(not(miri))]
    {
        extern "C" fn wipe() {
            WORD.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler lives as long as the program, and makes one store.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    NonNull::from(&WORD)
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "other programs mount this file as a public module")]
#[path = "../../tests/common/forked.rs"]
pub(crate) mod forked;

#[cfg(test)]
mod tests {
    use super::forked::in_forked_child;
    use super::*;

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let parent = OwnerProcess::current();
        assert_eq!(parent.number, OwnerProcess::current().number);
        let in_child = || {
            let before = parent.is_current();
            let child = OwnerProcess::current();
            // SAFETY: the child has one thread.
            let in_grandchild = unsafe {
                in_forked_child(|| {
                    let inherited = (parent.is_current(), child.is_current());
                    let mine = OwnerProcess::current();
                    format!("{inherited:?} {} {}", mine.is_current(), mine.number != parent.number)
                })
            };
            let after = (parent.is_current(), child.is_current());
            format!("{before} {after:?}; {}", in_grandchild.unwrap())
        };
        // SAFETY: the child takes no lock that another test could hold, except the allocator's,
        // which the C library looks after.
        let said = unsafe { in_forked_child(in_child) }.unwrap();
        assert_eq!(said, "false (false, true); (false, false) true true");
        assert!(parent.is_current());
    }

    /// Where the kernel wipes no page, the handler does.
    #[test]
    fn the_handler_wipes_its_word() {
        let word = handled_word();
        WORD.store(7, Ordering::Relaxed);
        // SAFETY: as above.
        let said = unsafe { in_forked_child(|| word.as_ref().load(Ordering::Relaxed).to_string()) };
        assert_eq!(said.unwrap(), "0");
        assert_eq!(WORD.load(Ordering::Relaxed), 7);
    }
}
