//! Buffers that begin anywhere: which stores a loop makes.

use crate::Region;
use crate::cpu::loops;
use crate::cpu::operations::{Combine, Register};
use std::cell::RefCell;

const LINE: usize = 64;

thread_local! {
    /// The addresses of all stores of [`Recording`] registers, in order.
    static STORES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A register of `N` bytes that writes down where it is stored.
#[derive(Clone, Copy)]
struct Recording<const N: usize>([u8; N]);

impl<const N: usize> Register for Recording<N> {
    const BYTES: usize = N;

    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller is responsible for the bytes.
        Self(unsafe { from.cast::<[u8; N]>().read_unaligned() })
    }

    unsafe fn store(self, to: *mut u8) {
        STORES.with_borrow_mut(|stores| stores.push(to.addr()));
        // SAFETY: the caller is responsible for the bytes.
        unsafe { to.cast::<[u8; N]>().write_unaligned(self.0) }
    }
}

/// Keeps the bytes of the first source.
struct First;

impl<const N: usize> Combine<Recording<N>, u8> for First {
    unsafe fn combine(left: Recording<N>, _: Recording<N>) -> Recording<N> {
        left
    }
}

/// Reduces two sources, and returns how many stores to the destination cross a line. Asserts that it
/// holds the result.
fn crossing<const N: usize>(offset: usize, len: usize) -> usize {
    let regions = [(); 2].map(|()| Region::new(len + LINE));
    let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let source = regions[1].view().slice(0, len);
    source.fill_from(&content);
    let into = regions[0].view().slice(offset, len);
    STORES.take();
    // SAFETY: all buffers have `len` bytes, more than a register; a `Recording` needs no CPU.
    unsafe {
        loops::reduce_long::<Recording<N>, u8, First>(
            into.as_mut_ptr(),
            std::ptr::null_mut(),
            &[source.as_view(); 2],
            len,
        );
    }
    assert_eq!(into.as_view().to_vec(), content, "offset {offset}, {len} bytes");
    let stores = STORES.take();
    stores.iter().filter(|address| *address / LINE != (*address + N - 1) / LINE).count()
}

/// Counts instead of measuring: only the first and the last register may cross a line.
#[test]
fn stores_cross_no_line_whatever_the_offsets() {
    let lengths = if cfg!(miri) { vec![7001] } else { vec![512, 1000, 7001, 16_384] };
    let step = if cfg!(miri) { 21 } else { 1 };
    for len in lengths {
        for into in (0..LINE).step_by(step) {
            assert!(crossing::<64>(into, len) <= 2, "offset {into}, {len} bytes");
            assert!(crossing::<32>(into, len) <= 2, "offset {into}, {len} bytes");
        }
    }
}
