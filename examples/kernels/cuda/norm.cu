// Layer normalisation: each row shifted and scaled to mean 0 and variance 1, then stretched. A
// block computes a row. Two numbers a row are kept for the backward pass: its mean and 1 /
// deviation.

KERNEL(layer_norm, ROW_THREADS)(
    REAL* y, REAL* stats, const REAL* x, const REAL* w, const REAL* b, u64 width, double epsilon) {
    const REAL* from = x + BLOCK * width;
    REAL part = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) part += from[at];
    REAL mean = over_block<Sum>(part) / (REAL)width;
    part = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        part += (from[at] - mean) * (from[at] - mean);
    }
    REAL variance = over_block<Sum>(part) / (REAL)width;
    REAL rstd = (REAL)1 / root(variance + (REAL)epsilon);
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        y[BLOCK * width + at] = (from[at] - mean) * rstd * w[at] + b[at];
    }
    if (THREAD == 0) {
        stats[2 * BLOCK] = mean;
        stats[2 * BLOCK + 1] = rstd;
    }
}

// dx += the gradient of a row.
KERNEL(layer_norm_backward, ROW_THREADS)(
    REAL* dx, const REAL* dy, const REAL* x, const REAL* stats, const REAL* w, u64 width) {
    u64 start = BLOCK * width;
    REAL mean = stats[2 * BLOCK];
    REAL rstd = stats[2 * BLOCK + 1];
    REAL slopes = 0;
    REAL products = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        REAL slope = dy[start + at] * w[at];
        slopes += slope;
        products += slope * (x[start + at] - mean) * rstd;
    }
    slopes = over_block<Sum>(slopes) / (REAL)width;
    products = over_block<Sum>(products) / (REAL)width;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        REAL normal = (x[start + at] - mean) * rstd;
        dx[start + at] += rstd * (dy[start + at] * w[at] - slopes - normal * products);
    }
}

// dw += and db += the sums over rows.
KERNEL(layer_norm_backward_weights, COLUMNS * LANES)(
    REAL* dw, REAL* db, const REAL* dy, const REAL* x, const REAL* stats, u64 rows, u64 width) {
    add_columns(dw, rows, width, [=](u64 row, u64 column) {
        u64 at = row * width + column;
        return dy[at] * ((x[at] - stats[2 * row]) * stats[2 * row + 1]);
    });
    add_columns(db, rows, width, [=](u64 row, u64 column) { return dy[row * width + column]; });
}
