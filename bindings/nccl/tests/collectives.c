/* Every collective with every type, operation and placement, and operations with a factor. */
#include "calls.h"

enum { SLOTS = 6, SLOT_BYTES = 2 << 20 };
static const size_t COUNTS[] = {1, 3, 64, 1000, 4099, 17, 20000, 2};

/* Calls that are in flight together. Every second batch is a group, and its calls are on two
 * streams. */
struct batch {
    struct rank *me;
    struct slot slots[SLOTS];
    int filled;
    int number;
};

static cudaStream_t stream_of(struct batch *batch, int slot) {
    return (slot + batch->number) % 2 ? batch->me->stream : batch->me->other;
}

static void flush(struct batch *batch) {
    struct rank *me = batch->me;
    bool is_group = batch->number % 2;
    if (is_group) NCCL(ncclGroupStart());
    for (int slot = 0; slot < batch->filled; slot++)
        start(me, &batch->slots[slot], me->comm, stream_of(batch, slot));
    if (is_group) NCCL(ncclGroupEnd());
    finish(me->stream);
    finish(me->other);
    check_healthy(me->comm);
    for (int slot = 0; slot < batch->filled; slot++) check(me, &batch->slots[slot]);
    batch->filled = 0;
    batch->number += 1;
}

static void add(struct batch *batch, struct call call) {
    static _Thread_local uint64_t made = 0;
    made += 1;
    call.seed = made;
    call.count = COUNTS[made % (sizeof COUNTS / sizeof *COUNTS)];
    call.root = (int)(made / 3 % (uint64_t)batch->me->world);
    prepare(batch->me, &batch->slots[batch->filled], &call, stream_of(batch, batch->filled));
    batch->filled += 1;
    if (batch->filled == SLOTS) flush(batch);
}

static void begin(struct batch *batch, struct rank *me) {
    *batch = (struct batch){.me = me};
    for (int slot = 0; slot < SLOTS; slot++) make_slot(&batch->slots[slot], SLOT_BYTES);
    join(me);
}

static void end(struct batch *batch) {
    flush(batch);
    leave(batch->me);
    for (int slot = 0; slot < SLOTS; slot++) free_slot(&batch->slots[slot]);
}

/* Every collective x type x operation x placement. */
static void all(struct rank *me) {
    struct batch batch;
    begin(&batch, me);
    for (int collective = 0; collective < COLLECTIVES; collective++) {
        for (int type = 0; type < ncclNumTypes; type++) {
            int ops = reduces(collective) ? ncclNumOps : 1;
            if (ops > 1 && !is_reduced(type)) continue;
            for (int op = 0; op < ops; op++) {
                for (int in_place = collective == BCAST; in_place < 2; in_place++) {
                    if (in_place && collective == ALL_TO_ALL) continue;
                    add(&batch, (struct call){.collective = collective,
                                              .type = type,
                                              .op = op,
                                              .in_place = in_place});
                }
            }
        }
    }
    end(&batch);
}

/* Each rank has a factor of its own, which lies on the host or on the device; the operation is
 * destroyed before its call begins, and before the group of the call ends. */
static void factors(struct rank *me) {
    struct batch batch;
    begin(&batch, me);
    const enum collective collectives[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER};
    for (int nth = 0; nth < 3; nth++) {
        for (int type = 0; type < ncclFloat8e4m3; type++) {
            for (int factor = HOST_FACTOR; factor <= DEVICE_FACTOR; factor++) {
                for (int in_place = 0; in_place < 2; in_place++)
                    add(&batch, (struct call){.collective = collectives[nth],
                                              .type = type,
                                              .factor = factor,
                                              .in_place = in_place});
            }
        }
    }
    end(&batch);
}

/* The factor of the device is that of the moment when the kernel runs. */
static void late_factor(struct rank *me) {
    join(me);
    address_t memory;
    CU(cuMemAlloc_v2(&memory, 64));
    float numbers[3] = {5, -1, 1000};
    CU(cuMemcpyHtoD_v2(memory, numbers, 12));
    ncclRedOp_t op;
    NCCL(ncclRedOpCreatePreMulSum(&op, (void *)(memory + 8), ncclFloat32, ncclScalarDevice,
                                  me->comm));
    CHECK(op >= ncclNumOps);
    float factor = (float)me->rank + 2;
    CU(cuMemcpyHtoDAsync_v2(memory + 8, &factor, 4, me->stream));
    NCCL(ncclAllReduce((void *)memory, (void *)(memory + 4), 1, ncclFloat32, op, me->comm,
                       me->stream));
    CU(cuMemcpyHtoDAsync_v2(memory + 8, &numbers[2], 4, me->stream));
    NCCL(ncclRedOpDestroy(op, me->comm));
    finish(me->stream);
    CU(cuMemcpyDtoH_v2(numbers, memory, 12));
    float right = 0;
    for (int rank = 0; rank < me->world; rank++) right += 5 * ((float)rank + 2);
    CHECK(numbers[1] == right);
    leave(me);
    CU(cuMemFree_v2(memory));
}

/* Numbers near the greatest one of 16 bits have an average. */
static void great_average(struct rank *me) {
    join(me);
    address_t memory;
    CU(cuMemAlloc_v2(&memory, 256));
    uint16_t numbers[100];
    for (int at = 0; at < 100; at++) numbers[at] = to_small(60000, 5, 10);
    CU(cuMemcpyHtoD_v2(memory, numbers, sizeof numbers));
    NCCL(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat16, ncclAvg, me->comm,
                       me->stream));
    finish(me->stream);
    CU(cuMemcpyDtoH_v2(numbers, memory, sizeof numbers));
    for (int at = 0; at < 100; at++) {
        double is = from_small(numbers[at], 5, 10);
        if (fabs(is - 60000) > 100) FAIL("the average of 60000 is %f", is);
    }
    leave(me);
    CU(cuMemFree_v2(memory));
}

/* Collectives of nothing do nothing, without any memory. */
static void nothing(struct rank *me) {
    join(me);
    NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, me->comm, me->stream));
    NCCL(ncclReduce(NULL, NULL, 0, ncclFloat32, ncclSum, 0, me->comm, me->stream));
    NCCL(ncclBroadcast(NULL, NULL, 0, ncclInt8, 0, me->comm, me->stream));
    NCCL(ncclBcast(NULL, 0, ncclInt8, 0, me->comm, me->stream));
    NCCL(ncclAllGather(NULL, NULL, 0, ncclInt8, me->comm, me->stream));
    NCCL(ncclReduceScatter(NULL, NULL, 0, ncclInt8, ncclMax, me->comm, me->stream));
    NCCL(ncclAlltoAll(NULL, NULL, 0, ncclInt8, me->comm, me->stream));
    NCCL(ncclGather(NULL, NULL, 0, ncclInt8, 0, me->comm, me->stream));
    NCCL(ncclScatter(NULL, NULL, 0, ncclInt8, 0, me->comm, me->stream));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, me->comm, me->stream));
    NCCL(ncclGroupEnd());
    leave(me);
}

/* Calls on the null stream and on the stream of the thread, in the order of the calls. */
static void named_streams(struct rank *me) {
    struct slot slots[3];
    for (int slot = 0; slot < 3; slot++) make_slot(&slots[slot], 1 << 16);
    join(me);
    for (int round = 0; round < 12; round++) {
        for (int slot = 0; slot < 3; slot++) {
            cudaStream_t stream = (cudaStream_t)(uintptr_t)((slot + round) % 3);
            struct call call = {.collective = ALL_REDUCE,
                                .type = ncclFloat32,
                                .count = 500,
                                .seed = (uint64_t)(10 * round + slot),
                                .in_place = round % 2};
            prepare(me, &slots[slot], &call, stream);
            start(me, &slots[slot], me->comm, stream);
        }
        CU(cuCtxSynchronize());
        for (int slot = 0; slot < 3; slot++) check(me, &slots[slot]);
    }
    leave(me);
    for (int slot = 0; slot < 3; slot++) free_slot(&slots[slot]);
}

/* One call on a buffer after another, each on another stream, which no event of the program orders:
 * NCCL runs the calls of a communicator one after another. */
static void call_order(struct rank *me) {
    join(me);
    address_t memory;
    CU(cuMemAlloc_v2(&memory, 4096));
    uint64_t numbers[100];
    for (int at = 0; at < 100; at++) numbers[at] = (uint64_t)at;
    CU(cuMemcpyHtoD_v2(memory, numbers, sizeof numbers));
    uint64_t factor = 1;
    for (int round = 0; round < 40; round++) {
        cudaStream_t stream = round % 3 ? me->stream : me->other;
        NCCL(ncclAllReduce((void *)memory, (void *)memory, 100, ncclUint64, ncclSum, me->comm,
                           stream));
        factor *= (uint64_t)me->world;
    }
    finish(me->stream);
    finish(me->other);
    CU(cuMemcpyDtoH_v2(numbers, memory, sizeof numbers));
    for (int at = 0; at < 100; at++) CHECK(numbers[at] == (uint64_t)at * factor);
    leave(me);
    CU(cuMemFree_v2(memory));
}

static const struct test TESTS[] = {
    {"all", all},
    {"factors", factors},
    {"late_factor", late_factor},
    {"great_average", great_average},
    {"nothing", nothing},
    {"named_streams", named_streams},
    {"call_order", call_order},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
