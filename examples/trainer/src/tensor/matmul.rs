//! Matrix products: the one place that calls `gemm`, and the one file of this crate with unsafe
//! code.
//!
//! `gemm` takes pointers and strides. Here a matrix is a slice with strides. Before a pointer is
//! made of the slice, its last element is checked to lie inside.
#![allow(unsafe_code, reason = "gemm takes pointers; what they may reach is checked here")]

use crate::tensor::math::Real;
use maypole_trainer_kernels::counting;

/// A matrix in borrowed memory: element (i, j) is `data[i * row + j * column]`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
}

impl<'a, T> MatrixView<'a, T> {
    /// A matrix of rows of `columns` elements, one after the other.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows.
    pub fn new(data: &'a [T], columns: usize) -> Self {
        assert!(
            data.len().is_multiple_of(columns),
            "{} elements are not whole rows of {columns}",
            data.len()
        );
        Self { data, rows: data.len() / columns, columns, row: columns, column: 1 }
    }

    /// A matrix of `rows` rows of `columns` elements. A row starts every `stride` elements.
    ///
    /// # Panics
    /// If the rows do not all lie in `data`.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Self {
        let matrix = Self { data, rows, columns, row: stride, column: 1 };
        assert!(
            matrix.span() <= data.len(),
            "{rows} rows of {columns} every {stride} in {}",
            data.len()
        );
        matrix
    }

    /// Returns the transpose.
    #[must_use]
    pub fn t(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row: self.column, column: self.row, ..self }
    }

    /// Returns the number of elements of `data` from the first to the last of the matrix, both
    /// included.
    fn span(&self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return 0;
        }
        (self.rows - 1) * self.row + (self.columns - 1) * self.column + 1
    }
}

/// `c = scale * a b`, or with `accumulate` `c += scale * a b`. Row `i` of `c` starts at
/// `c[i * stride]`.
///
/// # Panics
/// If the columns of `a` are not as many as the rows of `b`, or the result does not fit into `c`.
pub fn matmul<T: Real>(
    c: &mut [T],
    stride: usize,
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    scale: f64,
    accumulate: bool,
) {
    let rows = a.rows;
    let inner = a.columns;
    let columns = b.columns;
    assert_eq!(inner, b.rows, "{rows} x {inner} times {} x {columns}", b.rows);
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(
        stride >= columns && (rows - 1) * stride + columns <= c.len(),
        "{rows} rows every {stride} in {}",
        c.len()
    );
    assert!(
        a.span() <= a.data.len() && b.span() <= b.data.len(),
        "a matrix ends outside of its data"
    );
    let c_row = stride as isize;
    let signed = |stride: usize| stride as isize;
    // SAFETY: the last element that each pointer reaches by its strides lies in the slice it was
    // made of, as asserted above; `c` is borrowed mutably, so it overlaps neither of the others,
    // and its rows do not overlap one another.
    let product = || unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            c.as_mut_ptr(),
            1,
            c_row,
            accumulate,
            a.data.as_ptr(),
            signed(a.column),
            signed(a.row),
            b.data.as_ptr(),
            signed(b.column),
            signed(b.row),
            T::one(),
            T::of(scale),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    };
    // The work space that it allocates once is of no kind that the caller counts.
    counting::with_kind(0, product);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        let numbers =
            |n: usize, k: usize| (0..n).map(|i| ((i * k) % 17) as f64 - 8.0).collect::<Vec<_>>();
        let m = 5;
        let k = 7;
        let n = 3;
        let a = numbers(m * k, 5);
        let b = numbers(n * k, 3);
        let mut c = vec![1.0; m * 4];
        matmul(&mut c, 4, MatrixView::new(&a, k), MatrixView::new(&b, k).t(), 2.0, true);
        for i in 0..m {
            for j in 0..n {
                let sum: f64 = (0..k).map(|l| a[i * k + l] * b[j * k + l]).sum();
                assert_eq!(c[i * 4 + j], 1.0 + 2.0 * sum);
            }
            assert_eq!(c[i * 4 + 3], 1.0, "elements between rows are not written");
        }
    }

    #[test]
    #[should_panic(expected = "rows of 3 every 4")]
    fn a_matrix_beyond_its_data_is_refused() {
        MatrixView::strided(&[0f32; 10], 3, 3, 4);
    }
}
