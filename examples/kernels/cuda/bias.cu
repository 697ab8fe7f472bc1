// A bias, which is added to every row, and sums of two vectors.

// y += b, for every row of `width` numbers.
KERNEL(bias, 256)(REAL* y, const REAL* b, u64 count, u64 width) {
    u64 at = element();
    if (at < count) y[at] += b[at % width];
}

// db += the sum of the rows of dy.
KERNEL(bias_backward, COLUMNS * LANES)(REAL* db, const REAL* dy, u64 rows, u64 width) {
    add_columns(db, rows, width, [=](u64 row, u64 column) { return dy[row * width + column]; });
}

// y += x.
KERNEL(add, 256)(REAL* y, const REAL* x, u64 count) {
    u64 at = element();
    if (at < count) y[at] += x[at];
}
