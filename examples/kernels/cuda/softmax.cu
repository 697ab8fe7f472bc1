// The softmax of causal attention, forward and backward: line i of a matrix of tokens x tokens has
// i + 1 probabilities, followed by zeros. A block computes a line.

KERNEL(causal_softmax, ROW_THREADS)(REAL* p, u64 tokens, double least) {
    REAL* line = p + BLOCK * tokens;
    u64 seen = BLOCK % tokens + 1;
    REAL most = (REAL)least;
    for (u64 at = THREAD; at < seen; at += ROW_THREADS) most = Greatest::of(line[at], most);
    most = over_block<Greatest>(most);
    REAL part = 0;
    for (u64 at = THREAD; at < seen; at += ROW_THREADS) {
        line[at] = exponential(line[at] - most);
        part += line[at];
    }
    REAL share = (REAL)1 / over_block<Sum>(part);
    for (u64 at = THREAD; at < tokens; at += ROW_THREADS) {
        line[at] = at < seen ? line[at] * share : (REAL)0;
    }
}

// Replaces dp, the gradient of the probabilities, by that of the scores: p (dp - sum(p dp)).
KERNEL(softmax_backward, ROW_THREADS)(REAL* dp, const REAL* p, u64 tokens) {
    u64 start = BLOCK * tokens;
    REAL part = 0;
    for (u64 at = THREAD; at < tokens; at += ROW_THREADS) part += dp[start + at] * p[start + at];
    REAL mean = over_block<Sum>(part);
    for (u64 at = THREAD; at < tokens; at += ROW_THREADS) {
        dp[start + at] = p[start + at] * (dp[start + at] - mean);
    }
}
