/* One collective with its buffers: the input, the expected output, and the guard bytes around both,
 * which must not change. */
#ifndef CALLS_H_
#define CALLS_H_

#include "numbers.h"

enum collective {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    BCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    COLLECTIVES
};

static const char *const NAMES[COLLECTIVES] = {"AllReduce", "Reduce",    "Broadcast",
                                               "Bcast",     "AllGather", "ReduceScatter",
                                               "AlltoAll",  "Gather",    "Scatter"};

/* Where the factor of a sum of products lies. */
enum factor { NO_FACTOR, HOST_FACTOR, DEVICE_FACTOR };
static const int FACTORS[MOST_RANKS] = {2, 3, -1, 5, 1, 4, 7, -2};

/* The factor of a rank, which types without a sign have without its sign. */
HELPER int factor_of(ncclDataType_t type, int rank) {
    int factor = FACTORS[rank];
    return is_float(type) || is_signed(type) ? factor : abs(factor);
}

/* Writes the factor of a rank. */
HELPER void put_factor(ncclDataType_t type, void *into, int rank) {
    if (is_float(type))
        put_float(type, into, factor_of(type, rank));
    else
        put_integer(type, into, (uint64_t)factor_of(type, rank));
}

struct call {
    enum collective collective;
    ncclDataType_t type;
    ncclRedOp_t op;
    enum factor factor;
    size_t count;
    int root;
    bool in_place;
    /* The seed of the input. */
    uint64_t seed;
};

enum { GUARD = 256, POISON = 0x5a };

/* Memory of a device for one call at a time: a guard, the input, a guard, the output, a guard with
 * the factor. */
struct slot {
    address_t memory;
    size_t bytes;
    char *before;
    char *after;
    struct call call;
    size_t in, out;
    size_t out_count;
};

HELPER bool reduces(enum collective collective) {
    return collective == ALL_REDUCE || collective == REDUCE || collective == REDUCE_SCATTER;
}

HELPER void make_slot(struct slot *slot, size_t bytes) {
    *slot = (struct slot){.bytes = bytes, .before = malloc(bytes), .after = malloc(bytes)};
    CHECK(slot->before && slot->after);
    CU(cuMemAlloc_v2(&slot->memory, bytes));
}

HELPER void free_slot(struct slot *slot) {
    CU(cuMemFree_v2(slot->memory));
    free(slot->before);
    free(slot->after);
}

HELPER const char *describe(const struct call *call) {
    static _Thread_local char text[200];
    snprintf(text, sizeof text, "%s(%zu x %s, %s%s, root %d%s)", NAMES[call->collective],
             call->count, TYPES[call->type], call->factor ? "premul " : "", OPS[call->op],
             call->root, call->in_place ? ", in place" : "");
    return text;
}

/* The elements of this rank's input and output buffers; 0 for an unused buffer. */
static void count_elements(const struct rank *me, const struct call *call, size_t *in,
                           size_t *out) {
    size_t one = call->count, all = one * (size_t)me->world;
    bool is_root = me->rank == call->root;
    *in = one;
    *out = one;
    switch (call->collective) {
        case REDUCE: *out = is_root ? one : 0; break;
        case BROADCAST:
        case BCAST: *in = is_root ? one : 0; break;
        case ALL_GATHER: *out = all; break;
        case REDUCE_SCATTER: *in = all; break;
        case ALL_TO_ALL: *in = *out = all; break;
        case GATHER: *out = is_root ? all : 0; break;
        case SCATTER: *in = is_root ? all : 0; break;
        default: break;
    }
}

/* Writes element `at` of the right output of this rank. */
static void put_right(const struct rank *me, const struct call *call, size_t at, void *into) {
    size_t count = call->count;
    uint64_t mine = (uint64_t)me->rank * count;
    switch (call->collective) {
        case BROADCAST:
        case BCAST: put_input(call->type, into, call->seed, call->root, at); return;
        case SCATTER: put_input(call->type, into, call->seed, call->root, mine + at); return;
        case ALL_GATHER:
        case GATHER: put_input(call->type, into, call->seed, (int)(at / count), at % count); return;
        case ALL_TO_ALL:
            put_input(call->type, into, call->seed, (int)(at / count), mine + at % count);
            return;
        default: break;
    }
    char elements[MOST_RANKS * 8];
    size_t size = SIZES[call->type];
    size_t index = call->collective == REDUCE_SCATTER ? mine + at : at;
    for (int rank = 0; rank < me->world; rank++) {
        char *element = elements + (size_t)rank * size;
        put_input(call->type, element, call->seed, rank, index);
        if (!call->factor) continue;
        int factor = factor_of(call->type, rank);
        if (is_float(call->type))
            put_float(call->type, element, factor * get_float(call->type, element));
        else
            put_integer(call->type, element, (uint64_t)factor * get_integer(call->type, element));
    }
    reduce_elements(call->type, call->op, me->world, elements, into);
}

/* Where the input and the output of an in-place call lie in their common buffer. */
static void place(const struct rank *me, struct slot *slot, size_t in_count, size_t out_count) {
    const struct call *call = &slot->call;
    size_t size = SIZES[call->type];
    size_t part = (size_t)me->rank * call->count * size;
    bool is_part_of_root = call->collective == GATHER || call->collective == SCATTER;
    bool is_apart = is_part_of_root && me->rank != call->root;
    /* Buffers of a type need no other alignment than one of its elements. */
    slot->in = GUARD + call->seed % 3 * size;
    if (!call->in_place || is_apart) {
        slot->out = (slot->in + in_count * size + GUARD + 15) / 16 * 16 + call->seed % 5 * size;
        return;
    }
    slot->out = slot->in;
    if (call->collective == ALL_GATHER || call->collective == GATHER) slot->in += part;
    if (call->collective == REDUCE_SCATTER || call->collective == SCATTER) slot->out += part;
    (void)out_count;
}

/* Copies the input of this rank to the memory of the slot, in stream order. */
HELPER void prepare(const struct rank *me, struct slot *slot, const struct call *call,
                    cudaStream_t stream) {
    slot->call = *call;
    size_t in_count, size = SIZES[call->type];
    count_elements(me, call, &in_count, &slot->out_count);
    place(me, slot, in_count, slot->out_count);
    CHECK(slot->in + in_count * size + GUARD <= slot->bytes);
    CHECK(slot->out + slot->out_count * size + GUARD <= slot->bytes);
    memset(slot->before, POISON, slot->bytes);
    for (size_t at = 0; at < in_count; at++)
        put_input(call->type, slot->before + slot->in + at * size, call->seed, me->rank, at);
    put_factor(call->type, slot->before + slot->bytes - 8, me->rank);
    CU(cuMemcpyHtoDAsync_v2(slot->memory, slot->before, slot->bytes, stream));
}

/* Makes the call of the slot. */
HELPER ncclResult_t issue(const struct rank *me, const struct slot *slot, ncclRedOp_t op,
                          ncclComm_t comm, cudaStream_t stream) {
    const struct call *call = &slot->call;
    void *in = (void *)(slot->memory + slot->in);
    void *out = (void *)(slot->memory + slot->out);
    size_t count = call->count;
    ncclDataType_t type = call->type;
    /* Ranks other than the root may pass NULL for unused buffers. */
    void *unused = call->seed % 2 ? NULL : out;
    bool is_root = me->rank == call->root;
    switch (call->collective) {
        case ALL_REDUCE: return ncclAllReduce(in, out, count, type, op, comm, stream);
        case REDUCE:
            return ncclReduce(in, is_root ? out : unused, count, type, op, call->root, comm,
                              stream);
        case BROADCAST:
            return ncclBroadcast(is_root ? in : unused, out, count, type, call->root, comm, stream);
        case BCAST: return ncclBcast(out, count, type, call->root, comm, stream);
        case ALL_GATHER: return ncclAllGather(in, out, count, type, comm, stream);
        case REDUCE_SCATTER: return ncclReduceScatter(in, out, count, type, op, comm, stream);
        case ALL_TO_ALL: return ncclAlltoAll(in, out, count, type, comm, stream);
        case GATHER:
            return ncclGather(in, is_root ? out : unused, count, type, call->root, comm, stream);
        case SCATTER:
            return ncclScatter(is_root ? in : unused, out, count, type, call->root, comm, stream);
        default: FAIL("no collective %d", call->collective);
    }
}

/* Makes the call of the slot, with an operation of its own if it has a factor. */
HELPER void start(const struct rank *me, const struct slot *slot, ncclComm_t comm,
                  cudaStream_t stream) {
    const struct call *call = &slot->call;
    ncclRedOp_t op = call->op;
    char factor[8];
    memcpy(factor, slot->before + slot->bytes - 8, 8);
    if (call->factor == HOST_FACTOR)
        NCCL(ncclRedOpCreatePreMulSum(&op, factor, call->type, ncclScalarHostImmediate, comm));
    if (call->factor == DEVICE_FACTOR) {
        void *place = (void *)(slot->memory + slot->bytes - 8);
        NCCL(ncclRedOpCreatePreMulSum(&op, place, call->type, ncclScalarDevice, comm));
    }
    /* The library has read it. */
    memset(factor, POISON, 8);
    ncclResult_t result = issue(me, slot, op, comm, stream);
    if (result) FAIL("%s: %d: %s", describe(call), result, ncclGetLastError(comm));
    if (call->factor) NCCL(ncclRedOpDestroy(op, comm));
}

/* After the stream has completed: the output is correct, and no other byte has changed. */
HELPER void check(const struct rank *me, struct slot *slot) {
    const struct call *call = &slot->call;
    size_t size = SIZES[call->type];
    CU(cuMemcpyDtoH_v2(slot->after, slot->memory, slot->bytes));
    for (size_t at = 0; at < slot->out_count; at++) {
        char right[8] = {0};
        put_right(me, call, at, right);
        char *is = slot->after + slot->out + at * size;
        if (!is_right(call->type, call->op, me->world, is, right)) {
            uint64_t has = 0, wants = 0;
            memcpy(&has, is, size);
            memcpy(&wants, right, size);
            FAIL("%s: element %zu is %#lx instead of %#lx", describe(call), at, has, wants);
        }
        memcpy(slot->before + slot->out + at * size, is, size);
    }
    for (size_t at = 0; at < slot->bytes; at++) {
        if (slot->before[at] == slot->after[at]) continue;
        FAIL("%s: byte %zu of %zu changed, in at %zu, out at %zu", describe(call), at, slot->bytes,
             slot->in, slot->out);
    }
}

#endif
