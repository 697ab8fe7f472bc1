// RMS normalisation: each row scaled to a mean square of 1, then stretched. A block computes a
// row. One number a row is kept for the backward pass: 1 / the root of its mean square.

KERNEL(rms_norm, ROW_THREADS)(
    REAL* y, REAL* stats, const REAL* x, const REAL* w, u64 width, double epsilon) {
    const REAL* from = x + BLOCK * width;
    REAL part = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) part += from[at] * from[at];
    REAL squares = over_block<Sum>(part) / (REAL)width;
    REAL rstd = (REAL)1 / root(squares + (REAL)epsilon);
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        y[BLOCK * width + at] = from[at] * rstd * w[at];
    }
    if (THREAD == 0) stats[BLOCK] = rstd;
}

// dx += the gradient of a row.
KERNEL(rms_norm_backward, ROW_THREADS)(
    REAL* dx, const REAL* dy, const REAL* x, const REAL* stats, const REAL* w, u64 width) {
    u64 start = BLOCK * width;
    REAL rstd = stats[BLOCK];
    REAL part = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        part += x[start + at] * w[at] * dy[start + at];
    }
    REAL mean = over_block<Sum>(part) * rstd / (REAL)width;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        dx[start + at] += rstd * (dy[start + at] * w[at] - x[start + at] * rstd * mean);
    }
}

// dw += the sums over rows.
KERNEL(rms_norm_backward_weights, COLUMNS * LANES)(
    REAL* dw, const REAL* dy, const REAL* x, const REAL* stats, u64 rows, u64 width) {
    add_columns(dw, rows, width, [=](u64 row, u64 column) {
        u64 at = row * width + column;
        return dy[at] * x[at] * stats[row];
    });
}
