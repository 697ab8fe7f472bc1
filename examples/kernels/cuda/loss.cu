// Cross-entropy, and its gradient in place of the logits. A block computes a token.

KERNEL(cross_entropy, ROW_THREADS)(
    REAL* logits, double* losses, const u32* targets, u64 width, double weight, double least) {
    REAL* row = logits + BLOCK * width;
    u64 target = targets[BLOCK];
    // The host checks targets; this keeps a wrong one out of other memory.
    if (target >= width) return;
    REAL wanted = row[target];
    REAL most = (REAL)least;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) most = Greatest::of(row[at], most);
    // All threads have read `wanted` before any thread replaces it.
    most = over_block<Greatest>(most);
    REAL part = 0;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        row[at] = exponential(row[at] - most);
        part += row[at];
    }
    REAL sum = over_block<Sum>(part);
    REAL share = (REAL)weight / sum;
    for (u64 at = THREAD; at < width; at += ROW_THREADS) {
        REAL gradient = row[at] * share;
        row[at] = at == target ? gradient - (REAL)weight : gradient;
    }
    if (THREAD == 0) losses[BLOCK] = log((double)sum) + (double)most - (double)wanted;
}
