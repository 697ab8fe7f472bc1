// Embeddings: a line of a table for each token. A rank may have `lines` lines from number `first`
// on; tokens of other lines are passed over.

// x += table[ids].
KERNEL(embed, 256)(
    REAL* x, const REAL* table, const u32* ids, u64 first, u64 lines, u64 tokens, u64 width) {
    u64 at = element();
    u64 token = at / width;
    if (token >= tokens) return;
    u64 line = (u64)ids[token] - first;
    // An id below `first` has wrapped around to a large number.
    if (line < lines) x[at] += table[line * width + at % width];
}

// table[line] += the rows of dx of its tokens, in the order of tokens. The tokens of line
// `used[nth]` are `order[starts[nth]..starts[nth + 1]]`, so a thread adds all terms of its number.
KERNEL(embed_backward, 256)(
    REAL* table, const REAL* dx, const u32* used, const u32* starts, const u32* order, u64 groups,
    u64 lines, u64 ordered, u64 tokens, u64 width) {
    u64 at = element();
    u64 group = at / width;
    // Whatever the lists contain, no other memory is reached.
    if (group >= groups || used[group] >= lines || starts[group + 1] > ordered) return;
    u64 column = at % width;
    REAL sum = table[used[group] * width + column];
    for (u64 nth = starts[group]; nth < starts[group + 1]; nth++) {
        if (order[nth] < tokens) sum += dx[order[nth] * width + column];
    }
    table[used[group] * width + column] = sum;
}
