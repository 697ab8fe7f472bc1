//! Embeddings: vectors for the numbers of tokens and for their positions in the row.
//!
//! `x = table[token] + place[position]`. The backward pass adds each token's gradient to its line
//! of the table. A rank that has only some lines of the table leaves the vectors of other tokens
//! zero; the model then sums the vectors over ranks.

use crate::tensor::math::{Real, vectorized};

/// `x += table[ids]`, a row for each of `ids`. The first line of `table` is number `first`; a
/// number whose line is not in `table` adds nothing. A line is as long as a row of `x`.
pub fn forward<T: Real>(x: &mut [T], table: &[T], first: usize, ids: &[u32]) {
    let width = x.len() / ids.len();
    vectorized(|| {
        for (x, line) in
            x.chunks_exact_mut(width).zip(ids.iter().map(|id| line(table, first, *id, width)))
        {
            x.iter_mut().zip(line).for_each(|(x, line)| *x += *line);
        }
    });
}

#[inline(always)]
fn line<T>(table: &[T], first: usize, id: u32, width: usize) -> &[T] {
    let at = (id as usize).checked_sub(first).map(|line| line * width);
    at.and_then(|at| table.get(at..at + width)).unwrap_or(&[])
}

/// `dtable[ids] += dx`, a row of `dx` for each of `ids`. Rows whose line is not in `dtable` are
/// skipped.
pub fn backward<T: Real>(dtable: &mut [T], first: usize, ids: &[u32], dx: &[T]) {
    let width = dx.len() / ids.len();
    for (dx, id) in dx.chunks_exact(width).zip(ids) {
        let at = (*id as usize).checked_sub(first).map(|line| line * width);
        let Some(line) = at.and_then(|at| dtable.get_mut(at..at + width)) else { continue };
        line.iter_mut().zip(dx).for_each(|(line, dx)| *line += *dx);
    }
}
