//! Embeddings: from token numbers to vectors, and where in its row each token stands.
//!
//! `x = table[token] + place[position]`. The backward pass adds each token's gradient to the line
//! that it came from. A rank that has only some lines of the table adds what it has to zeros; who
//! sums that is the vocabulary's business.

use crate::tensor::math::{Real, vectorized};

/// `x +=` lines `ids` of `table`, whose first is number `first`; others are left out.
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

/// Lines `ids` of `dtable += dx`; lines that are elsewhere are left out.
pub fn backward<T: Real>(dtable: &mut [T], first: usize, ids: &[u32], dx: &[T]) {
    let width = dx.len() / ids.len();
    for (dx, id) in dx.chunks_exact(width).zip(ids) {
        let at = (*id as usize).checked_sub(first).map(|line| line * width);
        let Some(line) = at.and_then(|at| dtable.get_mut(at..at + width)) else { continue };
        line.iter_mut().zip(dx).for_each(|(line, dx)| *line += *dx);
    }
}
