//! The linear layer: `y = x w^T + b`, with `w` of shape outputs x inputs.
//!
//! Rows of `x` are tokens. Two of the three products of a training step are in the backward pass:
//! the gradient of the input, `dx = dy w`, and that of the weights, `dw += dy^T x`, which is a sum
//! over tokens. That last sum is why data parallelism works: the tokens of other ranks are further
//! terms of it.
//!
//! Tensor parallelism cuts `w` by outputs (column parallel) or by inputs (row parallel), and calls
//! these functions for a rank's part of `w`. The sums over ranks are in `tensor_parallel`.

use crate::tensor::math::{Real, add, vectorized};
use crate::tensor::matmul::{MatrixView, matmul};

/// `y = x w^T`, rows of `inputs` elements in, rows of `w.len() / inputs` elements out.
pub fn forward<T: Real>(y: &mut [T], x: &[T], w: &[T], inputs: usize) {
    matmul(
        y,
        w.len() / inputs,
        MatrixView::new(x, inputs),
        MatrixView::new(w, inputs).t(),
        1.0,
        false,
    );
}

/// `dx = dy w` and `dw += dy^T x`. Shapes are those of [`forward`].
pub fn backward<T: Real>(dx: &mut [T], dw: &mut [T], dy: &[T], x: &[T], w: &[T], inputs: usize) {
    let outputs = w.len() / inputs;
    matmul(dx, inputs, MatrixView::new(dy, outputs), MatrixView::new(w, inputs), 1.0, false);
    matmul(dw, inputs, MatrixView::new(dy, outputs).t(), MatrixView::new(x, inputs), 1.0, true);
}

/// `y += b`, for every row of `b.len()` elements.
pub fn bias<T: Real>(y: &mut [T], b: &[T]) {
    vectorized(|| {
        for row in y.chunks_exact_mut(b.len()) {
            row.iter_mut().zip(b).for_each(|(y, b)| *y += *b);
        }
    });
}

/// `db +=` the sum of the rows of `dy`, of `db.len()` elements each.
pub fn bias_backward<T: Real>(db: &mut [T], dy: &[T]) {
    let mut sum = vec![T::zero(); db.len()];
    vectorized(|| {
        for row in dy.chunks_exact(sum.len()) {
            sum.iter_mut().zip(row).for_each(|(sum, dy)| *sum += *dy);
        }
    });
    add(db, &sum);
}
