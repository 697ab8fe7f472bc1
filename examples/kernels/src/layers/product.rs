//! Products of matrices in a GPU's memory.

use super::call::DeviceSlice;
use super::machine::{Float, Launch, Machine};
use maypole_kernels::cuda::CudaError;

/// Threads of a block, as in `product.cu`.
const THREADS: u32 = 256;
/// Rows and columns of the result that a block computes, as in `product.cu`.
const TILE: usize = 64;

/// A matrix in a slice, or several of equal shapes.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMatrix<T> {
    slice: DeviceSlice<T>,
    place: MatrixPlace,
}

/// The shape of a matrix, and the steps between its elements: element (i, j) of matrix (m, n) of a
/// batch is at `first + m * outer + n * inner + i * row + j * column`.
#[derive(Clone, Copy, Debug)]
struct MatrixPlace {
    /// Bytes from the start of the memory to the first element.
    start: usize,
    /// Bytes from the start of the memory to the end of the slice.
    end: usize,
    /// Elements from the start of the slice to the first element.
    first: usize,
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
    outer: usize,
    inner: usize,
}

impl MatrixPlace {
    /// One past the last element that a batch reaches, counted from the start of the slice.
    fn last(&self, batch: Batch) -> usize {
        if self.rows == 0 || self.columns == 0 || batch.matrices() == 0 {
            return 0;
        }
        let matrix = (batch.outer - 1) * self.outer + (batch.inner - 1) * self.inner;
        let element = (self.rows - 1) * self.row + (self.columns - 1) * self.column;
        self.first + matrix + element + 1
    }
}

impl<T> DeviceMatrix<T> {
    /// A matrix of rows of `columns` elements, one after the other.
    ///
    /// # Panics
    /// If the slice is not a whole number of rows.
    pub fn new(slice: DeviceSlice<T>, columns: usize) -> Self {
        let len = slice.len();
        assert!(len.is_multiple_of(columns), "{len} elements are not whole rows of {columns}");
        Self::strided(slice, 0, [len / columns, columns], columns)
    }

    /// A matrix of `rows` rows of `columns` elements, of which the first is at `first`. A row
    /// starts every `stride` elements.
    pub fn strided(
        slice: DeviceSlice<T>,
        first: usize,
        [rows, columns]: [usize; 2],
        stride: usize,
    ) -> Self {
        let bytes = slice.bytes();
        let place = MatrixPlace {
            start: bytes.start + first * size_of::<T>(),
            end: bytes.end,
            first,
            rows,
            columns,
            row: stride,
            column: 1,
            outer: 0,
            inner: 0,
        };
        Self { slice, place }
    }

    /// The matrices of a batch: the next row of the batch is `outer` elements further, and the
    /// next matrix of a row is `inner` elements further.
    #[must_use]
    pub fn every(mut self, outer: usize, inner: usize) -> Self {
        self.place.outer = outer;
        self.place.inner = inner;
        self
    }

    /// The transpose.
    #[must_use]
    pub fn t(mut self) -> Self {
        let MatrixPlace { rows, columns, row, column, .. } = self.place;
        self.place =
            MatrixPlace { rows: columns, columns: rows, row: column, column: row, ..self.place };
        self
    }

    fn checked(self, batch: Batch) -> MatrixPlace {
        let last = self.place.last(batch);
        assert!(last <= self.slice.len(), "a matrix ends at {last} of {}", self.slice.len());
        self.place
    }
}

/// The number of products of a launch: `inner` in each of `outer` rows.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Rows of the batch.
    pub outer: usize,
    /// Products in a row.
    pub inner: usize,
}

impl Batch {
    /// One product.
    pub const ONE: Self = Self { outer: 1, inner: 1 };

    fn matrices(self) -> usize {
        self.outer * self.inner
    }
}

/// Computes `c = a b`, or with `accumulates` `c += a b`. Rows of `c` must be dense.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the shapes do not fit together, or a matrix ends outside of its slice.
pub fn run<T: Float>(
    machine: &mut dyn Machine,
    c: DeviceMatrix<T>,
    factors: [DeviceMatrix<T>; 2],
    accumulates: bool,
) -> Result<(), CudaError> {
    run_batch(machine, Batch::ONE, c, factors, (1.0, accumulates))
}

/// Computes all products of a batch: `c = scale * a b`, or with `accumulates` `c += scale * a b`.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// As [`run`].
pub fn run_batch<T: Float>(
    machine: &mut dyn Machine,
    batch: Batch,
    c: DeviceMatrix<T>,
    factors: [DeviceMatrix<T>; 2],
    (scale, accumulates): (f64, bool),
) -> Result<(), CudaError> {
    let c = c.checked(batch);
    let [a, b] = factors.map(|factor| factor.checked(batch));
    let fits = a.columns == b.rows && [c.rows, c.columns] == [a.rows, b.columns];
    assert!(
        fits && c.column == 1,
        "{} x {} times {} x {} is not {} x {}",
        a.rows,
        a.columns,
        b.rows,
        b.columns,
        c.rows,
        c.columns
    );
    let tiles = c.rows.div_ceil(TILE) * c.columns.div_ceil(TILE);
    Launch::new::<T>("product", batch.matrices() * tiles, THREADS)
        .place(c.start..c.end)
        .count(c.row)
        .count(c.outer)
        .count(c.inner)
        .place(a.start..a.end)
        .count(a.row)
        .count(a.column)
        .count(a.outer)
        .count(a.inner)
        .place(b.start..b.end)
        .count(b.row)
        .count(b.column)
        .count(b.outer)
        .count(b.inner)
        .count(c.rows)
        .count(c.columns)
        .count(a.columns)
        .count(batch.inner)
        .number(scale)
        .count(usize::from(accumulates))
        .on(machine)
}
