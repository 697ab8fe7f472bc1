//! GB/s of copies by offset and length, compared with those of the C library.
//!
//! ```text
//! cargo bench --bench copies
//! ```
//!
//! A row is one offset: how many bytes later in its page the destination begins than the source in its
//! own. A column is a length, in caches (*warm*) or in memory (*cold*); it has GB/s of
//! [`ViewMut::copy_from`] and of `memcpy`, each the median of nine rows of copies, taken in turn. Below the
//! table stand the cases in which ours has less than nine tenths of the other's speed.

use maypole_kernels::{Region, View, ViewMut};
use std::hint::black_box;
use std::time::Instant;

const LENGTHS: [usize; 6] = [2 << 10, 4 << 10, 16 << 10, 32 << 10, 256 << 10, 16 << 20];
/// Lengths that are measured cold: the others take less time than the clock's calls.
const COLD: [usize; 3] = [16 << 10, 32 << 10, 256 << 10];
/// Offsets outside of -64 to 64.
const FAR: [usize; 4] = [128, 512, 2048, 4096 - 512];
/// More than any cache holds.
const COLD_BYTES: usize = 256 << 20;
const PAGE: usize = 4096;
const SAMPLES: usize = 9;
const SAMPLE: usize = 1 << 20;

/// Two buffers, and where the next cold copy begins.
struct Buffers {
    from: Region,
    to: Region,
    next: usize,
}

impl Buffers {
    fn new(bytes: usize) -> Self {
        let [from, to] = [(); 2].map(|()| Region::new(bytes + 2 * PAGE));
        for region in [&from, &to] {
            region.view().fill_from(&vec![1; bytes + 2 * PAGE]);
        }
        Self { from, to, next: 0 }
    }

    /// Source and destination of the next copy, `ahead` bytes apart in their pages.
    fn views(&mut self, len: usize, ahead: usize, is_cold: bool) -> (View<'_>, ViewMut<'_>) {
        let start = self.next;
        if is_cold {
            self.next += len.next_multiple_of(PAGE) + PAGE;
            if self.next + len > self.from.len() - 2 * PAGE {
                self.next = 0;
            }
        }
        (self.from.view().as_view().slice(start, len), self.to.view().slice(start + ahead, len))
    }

    /// GB/s of `copy`.
    fn rate(&mut self, (len, ahead, is_cold): Case, copy: impl Fn(View<'_>, ViewMut<'_>)) -> f64 {
        let count = (SAMPLE / len).max(1);
        let start = Instant::now();
        for _ in 0..count {
            let (from, to) = self.views(len, ahead, is_cold);
            copy(black_box(from), black_box(to));
        }
        (count * len) as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    /// GB/s of ours and of the C library's, by their medians.
    fn compare(&mut self, case: Case) -> (f64, f64) {
        let mut rates = [const { Vec::new() }; 2];
        for _ in 0..SAMPLES {
            rates[0].push(self.rate(case, by_views));
            rates[1].push(self.rate(case, by_c_library));
        }
        let [ours, theirs] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[SAMPLES / 2]
        });
        (ours, theirs)
    }
}

/// Bytes, offset within the page, and whether the copy is cold.
type Case = (usize, usize, bool);

// Neither is inlined: the loop around them would cost them unequal times.
#[inline(never)]
fn by_views(from: View<'_>, to: ViewMut<'_>) {
    to.copy_from(from);
}

#[inline(never)]
fn by_c_library(from: View<'_>, to: ViewMut<'_>) {
    // SAFETY: both have the same length, live now, and are of two allocations.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

fn main() {
    let (mut warm, mut cold) = (Buffers::new(LENGTHS[LENGTHS.len() - 1]), Buffers::new(COLD_BYTES));
    let cases: Vec<(usize, bool)> =
        LENGTHS.map(|len| (len, false)).into_iter().chain(COLD.map(|len| (len, true))).collect();
    print!("{:>6}", "offset");
    for (len, is_cold) in &cases {
        let name = format!("{} KiB{}", len >> 10, if *is_cold { " cold" } else { "" });
        print!("{name:>16}");
    }
    println!("\n{:>6}{}", "", format!("{:>16}", "ours    C").repeat(cases.len()));
    let near = (0..=64).chain(PAGE - 64..PAGE);
    let mut slower = Vec::new();
    for ahead in near.chain(FAR) {
        print!("{:>6}", if ahead + 64 >= PAGE { ahead as i64 - PAGE as i64 } else { ahead as i64 });
        for (len, is_cold) in &cases {
            let buffers = if *is_cold { &mut cold } else { &mut warm };
            let (ours, theirs) = buffers.compare((*len, ahead, *is_cold));
            print!("{:>10.1} {:>5.1}", ours, theirs);
            if ours < 0.9 * theirs {
                slower.push((ahead, *len, *is_cold, ours / theirs));
            }
        }
        println!();
    }
    println!("{} of {} cases below 0.9:", slower.len(), cases.len() * (129 + FAR.len()));
    for (ahead, len, is_cold, ratio) in slower {
        let cold = if is_cold { ", cold" } else { "" };
        println!("offset {ahead}, {} KiB{cold}: {ratio:.2}", len >> 10);
    }
}
