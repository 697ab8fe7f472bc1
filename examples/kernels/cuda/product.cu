// Products of matrices: c = scale * a b, or c += scale * a b, for several matrices of equal
// shapes.
//
// A matrix may lie in memory in any way that has a step between rows and a step between columns,
// so a transpose is the same memory with the steps exchanged. A block computes a tile of TILE x
// TILE of c. It takes DEPTH columns of a and rows of b at a time through shared memory, and
// fetches the next ones while it computes. A thread computes EACH x EACH numbers, each as one sum
// in the order of the columns of a.

constexpr u64 TILE = 64;
constexpr u64 DEPTH = 16;
constexpr u64 EACH = 4;
constexpr u64 ACROSS = TILE / EACH;
constexpr u64 PRODUCT_THREADS = ACROSS * ACROSS;
// Numbers of a tile that one thread fetches.
constexpr u64 FETCHED = TILE * DEPTH / PRODUCT_THREADS;
// A line of shared memory is longer than a tile, so that threads that store a column of a tile
// reach different banks.
constexpr u64 LINE = TILE + 4;

// One of the two factors: `lines` rows of a or columns of b.
struct Factor {
    const REAL* data;
    u64 line_step;
    u64 depth_step;
    u64 first_line;
    u64 lines;
    u64 depth;
};

// Which number of a tile a thread fetches as its `nth`: neighbours in memory by neighbouring
// threads.
DEVICE void place(const Factor& factor, u64 nth, u64& line, u64& depth) {
    u64 at = nth * PRODUCT_THREADS + THREAD;
    if (factor.depth_step == 1) {
        depth = at % DEPTH;
        line = at / DEPTH;
    } else {
        line = at % TILE;
        depth = at / TILE;
    }
}

// Numbers outside of the matrix count as zero.
DEVICE void fetch(REAL* numbers, const Factor& factor, u64 from) {
    UNROLL
    for (u64 nth = 0; nth < FETCHED; nth++) {
        u64 line, depth;
        place(factor, nth, line, depth);
        line += factor.first_line;
        depth += from;
        bool inside = line < factor.lines && depth < factor.depth;
        numbers[nth] =
            inside ? factor.data[line * factor.line_step + depth * factor.depth_step] : (REAL)0;
    }
}

DEVICE void store(REAL* tile, const REAL* numbers, const Factor& factor) {
    UNROLL
    for (u64 nth = 0; nth < FETCHED; nth++) {
        u64 line, depth;
        place(factor, nth, line, depth);
        tile[depth * LINE + line] = numbers[nth];
    }
}

DEVICE void multiply(REAL (&sums)[EACH][EACH], const REAL* left, const REAL* right) {
    u64 down = THREAD / ACROSS * EACH;
    u64 across = THREAD % ACROSS * EACH;
    UNROLL
    for (u64 k = 0; k < DEPTH; k++) {
        REAL a[EACH], b[EACH];
        UNROLL
        for (u64 i = 0; i < EACH; i++) a[i] = left[k * LINE + down + i];
        UNROLL
        for (u64 j = 0; j < EACH; j++) b[j] = right[k * LINE + across + j];
        UNROLL
        for (u64 i = 0; i < EACH; i++) {
            UNROLL
            for (u64 j = 0; j < EACH; j++) sums[i][j] = multiply_add(a[i], b[j], sums[i][j]);
        }
    }
}

// Matrices are numbered row after row of the batch, `inner` of them a row. An `_outer` step leads
// to the next row of the batch, and an `_inner` step to the next matrix of the row. Blocks are
// numbered matrix by matrix, and in a matrix tile row by tile row.
KERNEL(product, PRODUCT_THREADS)(
    REAL* c, u64 c_row, u64 c_outer, u64 c_inner,
    const REAL* a, u64 a_row, u64 a_column, u64 a_outer, u64 a_inner,
    const REAL* b, u64 b_row, u64 b_column, u64 b_outer, u64 b_inner,
    u64 rows, u64 columns, u64 depth, u64 inner, double scale, u64 accumulates) {
    SHARED(REAL, tiles, 2 * DEPTH * LINE);
    REAL* left = tiles;
    REAL* right = tiles + DEPTH * LINE;
    u64 tiles_across = (columns + TILE - 1) / TILE;
    u64 tiles_down = (rows + TILE - 1) / TILE;
    u64 matrix = BLOCK / (tiles_across * tiles_down);
    u64 tile = BLOCK % (tiles_across * tiles_down);
    u64 first_row = tile / tiles_across * TILE;
    u64 first_column = tile % tiles_across * TILE;
    u64 outer = matrix / inner;
    u64 nth = matrix % inner;
    Factor of_a = {a + outer * a_outer + nth * a_inner, a_row, a_column, first_row, rows, depth};
    Factor of_b = {b + outer * b_outer + nth * b_inner, b_column, b_row, first_column, columns,
                   depth};
    REAL next_a[FETCHED], next_b[FETCHED];
    REAL sums[EACH][EACH] = {};
    fetch(next_a, of_a, 0);
    fetch(next_b, of_b, 0);
    for (u64 from = 0; from < depth; from += DEPTH) {
        store(left, next_a, of_a);
        store(right, next_b, of_b);
        BARRIER();
        if (from + DEPTH < depth) {
            fetch(next_a, of_a, from + DEPTH);
            fetch(next_b, of_b, from + DEPTH);
        }
        multiply(sums, left, right);
        BARRIER();
    }
    REAL* result = c + outer * c_outer + nth * c_inner;
    UNROLL
    for (u64 i = 0; i < EACH; i++) {
        UNROLL
        for (u64 j = 0; j < EACH; j++) {
            u64 row = first_row + THREAD / ACROSS * EACH + i;
            u64 column = first_column + THREAD % ACROSS * EACH + j;
            if (row >= rows || column >= columns) continue;
            REAL* number = result + row * c_row + column;
            REAL term = (REAL)scale * sums[i][j];
            *number = accumulates ? *number + term : term;
        }
    }
}
