// Sums and maxima over the threads of a block, and sums over the rows of a matrix, each in one
// fixed order.

// Threads of a block that computes one row.
constexpr u64 ROW_THREADS = 128;
// A block of COLUMNS x LANES threads adds up COLUMNS columns.
constexpr u64 COLUMNS = 32;
constexpr u64 LANES = 8;

struct Sum {
    DEVICE REAL of(REAL a, REAL b) { return a + b; }
};
struct Greatest {
    DEVICE REAL of(REAL a, REAL b) { return a > b ? a : b; }
};

// Combines one number of each of ROW_THREADS threads, and returns the result to all of them. Pairs
// at half the distance are combined in each turn.
template <class Operation> DEVICE REAL over_block(REAL mine) {
    SHARED(REAL, numbers, ROW_THREADS);
    numbers[THREAD] = mine;
    BARRIER();
    for (u64 half = ROW_THREADS / 2; half > 0; half /= 2) {
        if (THREAD < half) {
            numbers[THREAD] = Operation::of(numbers[THREAD], numbers[THREAD + half]);
        }
        BARRIER();
    }
    REAL result = numbers[0];
    // The next call overwrites the numbers.
    BARRIER();
    return result;
}

// Adds to each of `width` sums the terms of its column. LANES threads share a column: each adds
// every LANES-th row, and the first of them adds what they found, in order.
template <class Term> DEVICE void add_columns(REAL* sums, u64 rows, u64 width, Term term) {
    SHARED(REAL, parts, COLUMNS * LANES);
    u64 column = BLOCK * COLUMNS + THREAD % COLUMNS;
    u64 lane = THREAD / COLUMNS;
    REAL part = 0;
    if (column < width) {
        for (u64 row = lane; row < rows; row += LANES) part += term(row, column);
    }
    parts[THREAD] = part;
    BARRIER();
    if (lane == 0 && column < width) {
        REAL sum = 0;
        for (u64 other = 0; other < LANES; other++) sum += parts[other * COLUMNS + THREAD];
        sums[column] += sum;
    }
    // The next call overwrites the parts.
    BARRIER();
}
