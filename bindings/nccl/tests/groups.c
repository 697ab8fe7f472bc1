/* Groups, groups across communicators, communicators split from others, and calls that are refused.
 */
#include "calls.h"

enum { SLOT_BYTES = 1 << 18 };

/* A view of this rank as a member of `comm`. */
static struct rank member(const struct rank *me, ncclComm_t comm) {
    struct rank view = *me;
    view.comm = comm;
    NCCL(ncclCommUserRank(comm, &view.rank));
    NCCL(ncclCommCount(comm, &view.world));
    return view;
}

/* One all-reduce of `comm`, from its beginning to its end. */
static void try_comm(const struct rank *me, ncclComm_t comm, uint64_t seed) {
    struct rank view = member(me, comm);
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    struct call call = {.collective = ALL_REDUCE, .type = ncclInt64, .count = 777, .seed = seed};
    prepare(&view, &slot, &call, me->stream);
    start(&view, &slot, comm, me->stream);
    finish(me->stream);
    check(&view, &slot);
    free_slot(&slot);
}

/* Groups in groups start nothing until the outermost one ends, and the end of no group is an error.
 */
static void nested(struct rank *me) {
    join(me);
    struct slot slots[3];
    for (int slot = 0; slot < 3; slot++) make_slot(&slots[slot], SLOT_BYTES);
    RETURNS(ncclInvalidUsage, ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclGroupEnd());
    for (int round = 0; round < 10; round++) {
        for (int slot = 0; slot < 3; slot++) {
            struct call call = {.collective = ALL_REDUCE,
                                .type = ncclFloat32,
                                .count = 1000,
                                .seed = (uint64_t)(round * 3 + slot)};
            prepare(me, &slots[slot], &call, me->stream);
        }
        NCCL(ncclGroupStart());
        start(me, &slots[0], me->comm, me->stream);
        NCCL(ncclGroupStart());
        start(me, &slots[1], me->comm, me->stream);
        NCCL(ncclGroupStart());
        NCCL(ncclGroupEnd());
        NCCL(ncclGroupEnd());
        /* Nothing has been started yet. */
        finish(me->stream);
        char byte;
        CU(cuMemcpyDtoH_v2(&byte, slots[1].memory + slots[1].out, 1));
        CHECK(byte == POISON);
        start(me, &slots[2], me->comm, me->stream);
        NCCL(ncclGroupEnd());
        finish(me->stream);
        for (int slot = 0; slot < 3; slot++) check(me, &slots[slot]);
    }
    RETURNS(ncclInvalidUsage, ncclGroupEnd());
    leave(me);
    for (int slot = 0; slot < 3; slot++) free_slot(&slots[slot]);
}

/* A wrong argument is an error of the call and of the end of its group, which starts nothing. */
static void wrong_in_group(struct rank *me) {
    join(me);
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    struct call call = {.collective = ALL_REDUCE, .type = ncclFloat32, .count = 100, .seed = 1};
    prepare(me, &slot, &call, me->stream);
    void *memory = (void *)slot.memory;
    NCCL(ncclGroupStart());
    start(me, &slot, me->comm, me->stream);
    RETURNS(ncclInvalidArgument,
            ncclReduce(memory, memory, 1, ncclInt8, ncclSum, me->world, me->comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclGroupEnd());
    finish(me->stream);
    char byte;
    CU(cuMemcpyDtoH_v2(&byte, slot.memory + slot.out, 1));
    CHECK(byte == POISON);
    start(me, &slot, me->comm, me->stream);
    finish(me->stream);
    check(me, &slot);
    leave(me);
    free_slot(&slot);
}

/* What is refused at once, and what is allowed though it looks strange. */
static void arguments(struct rank *me) {
    RETURNS(ncclInvalidUsage, ncclGroupEnd());
    NCCL(ncclCommAbort(NULL));
    NCCL(ncclCommDestroy(NULL));
    int version = 0;
    NCCL(ncclGetVersion(&version));
    CHECK(version == 22809);
    CHECK(ncclGetLastError(NULL));
    CHECK(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
    join(me);
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    void *a = (void *)slot.memory, *b = (void *)(slot.memory + 4096);
    ncclComm_t comm = me->comm;
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, b, 1, ncclInt8, ncclSum, NULL, me->stream));
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, b, 1, ncclNumTypes, ncclSum, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, b, 1, ncclFloat8e4m3, ncclSum, comm, me->stream));
    RETURNS(ncclInvalidArgument,
            ncclAllReduce(a, b, 1, ncclInt8, (ncclRedOp_t)77, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, NULL, 1, ncclInt8, ncclSum, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclBroadcast(a, b, 1, ncclInt8, -1, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclBroadcast(a, b, 1, ncclInt8, me->world, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclSend(a, 1, ncclInt8, me->world, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclRecv(a, 1, ncclInt8, -1, comm, me->stream));
    NCCL(ncclCommDeregister(comm, NULL));
    void *handle = NULL;
    NCCL(ncclCommRegister(comm, a, slot.bytes, &handle));
    NCCL(ncclCommDeregister(comm, handle));
    ncclWindow_t window = (ncclWindow_t)a;
    NCCL(ncclCommWindowRegister(comm, a, slot.bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(window == NULL);
    void *memory = NULL;
    NCCL(ncclMemAlloc(&memory, 1000));
    CU(cuMemcpyHtoD_v2((address_t)memory, slot.before, 1000));
    NCCL(ncclMemFree(memory));
    ncclRedOp_t op;
    float factor = 2;
    NCCL(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    /* An operation is of its own type only. */
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, b, 1, ncclInt8, op, comm, me->stream));
    NCCL(ncclRedOpDestroy(op, comm));
    RETURNS(ncclInvalidArgument, ncclAllReduce(a, b, 1, ncclFloat32, op, comm, me->stream));
    RETURNS(ncclInvalidArgument, ncclRedOpDestroy(op, comm));
    /* Nothing of this has hurt the communicator. */
    check_healthy(comm);
    try_comm(me, comm, 5);
    finish(me->stream);
    NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
    RETURNS(ncclInvalidArgument, ncclCommDestroy(comm));
    free_slot(&slot);
}

/* As torch makes all_gather of a list, with other counts per rank, and reduce_scatter of a list. */
static void lists(struct rank *me) {
    join(me);
    struct slot slots[MOST_RANKS];
    for (int slot = 0; slot < me->world; slot++) make_slot(&slots[slot], SLOT_BYTES);
    for (int round = 0; round < 10; round++) {
        for (int root = 0; root < me->world; root++) {
            struct call call = {.collective = round % 2 ? REDUCE : BROADCAST,
                                .type = ncclFloat32,
                                .count = (size_t)(100 * root + round),
                                .root = root,
                                .in_place = round % 4 > 1,
                                .seed = (uint64_t)(round * 10 + root)};
            prepare(me, &slots[root], &call, me->stream);
        }
        NCCL(ncclGroupStart());
        for (int root = 0; root < me->world; root++) start(me, &slots[root], me->comm, me->stream);
        NCCL(ncclGroupEnd());
        finish(me->stream);
        for (int root = 0; root < me->world; root++) check(me, &slots[root]);
    }
    leave(me);
    for (int slot = 0; slot < me->world; slot++) free_slot(&slots[slot]);
}

/* One group with calls of three communicators, of which one has the ranks in the other order. */
static void three_comms(struct rank *me) {
    join(me);
    ncclComm_t comms[3] = {me->comm, NULL, NULL};
    comms[1] = join_number(me, 1);
    NCCL(ncclCommSplit(me->comm, 7, -me->rank, &comms[2], NULL));
    struct slot slots[6];
    for (int slot = 0; slot < 6; slot++) make_slot(&slots[slot], SLOT_BYTES);
    struct rank views[3];
    for (int comm = 0; comm < 3; comm++) views[comm] = member(me, comms[comm]);
    CHECK(views[1].rank == me->rank && views[2].rank == me->world - 1 - me->rank);
    for (int round = 0; round < 10; round++) {
        cudaStream_t streams[2] = {me->stream, round % 2 ? me->other : me->stream};
        for (int slot = 0; slot < 6; slot++) {
            struct call call = {.collective = slot % 2 ? ALL_GATHER : ALL_REDUCE,
                                .type = ncclInt32,
                                .count = (size_t)(500 + round),
                                .seed = (uint64_t)(round * 6 + slot)};
            prepare(&views[slot % 3], &slots[slot], &call, streams[slot / 3]);
        }
        NCCL(ncclGroupStart());
        for (int slot = 0; slot < 6; slot++)
            start(&views[slot % 3], &slots[slot], comms[slot % 3], streams[slot / 3]);
        NCCL(ncclGroupEnd());
        finish(me->stream);
        finish(me->other);
        for (int slot = 0; slot < 6; slot++) check(&views[slot % 3], &slots[slot]);
    }
    for (int comm = 2; comm > 0; comm--) NCCL(ncclCommDestroy(comms[comm]));
    leave(me);
    for (int slot = 0; slot < 6; slot++) free_slot(&slots[slot]);
}

/* Communicators of some ranks, of each alone, of all in another order, and of parts of parts. */
static void split(struct rank *me) {
    join(me);
    ncclComm_t even = NULL, alone = NULL, first = NULL, part = NULL, unused = (ncclComm_t)1;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "part";
    NCCL(ncclCommSplit(me->comm, me->rank % 2, me->rank, &even, &config));
    NCCL(ncclCommSplit(me->comm, me->rank, 0, &alone, NULL));
    NCCL(ncclCommSplit(me->comm, NCCL_SPLIT_NOCOLOR, 0, &unused, NULL));
    CHECK(unused == NULL);
    NCCL(ncclCommSplit(me->comm, me->rank ? NCCL_SPLIT_NOCOLOR : 3, 0, &first, NULL));
    CHECK((first != NULL) == (me->rank == 0));
    NCCL(ncclCommSplit(even, 0, -me->rank, &part, NULL));
    struct rank view = member(me, even);
    CHECK(view.rank == me->rank / 2 && view.world == (me->world + 1 - me->rank % 2) / 2);
    view = member(me, part);
    CHECK(view.world - 1 - view.rank == me->rank / 2);
    view = member(me, alone);
    CHECK(view.rank == 0 && view.world == 1);
    for (int round = 0; round < 3; round++) {
        ncclComm_t comms[] = {me->comm, even, alone, first, part};
        for (int comm = 0; comm < 5; comm++) {
            if (comms[comm]) try_comm(me, comms[comm], (uint64_t)(round * 5 + comm));
        }
    }
    /* A part lives longer than what it was split from. */
    leave(me);
    NCCL(ncclCommDestroy(even));
    try_comm(me, part, 50);
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommDestroy(alone));
    NCCL(ncclCommDestroy(first));
}

/* Calls of the parent are in flight while it is split, and it is split many times. */
static void split_often(struct rank *me) {
    join(me);
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    for (int round = 0; round < 12; round++) {
        struct call call = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 5000, .seed = (uint64_t)round};
        prepare(me, &slot, &call, me->stream);
        start(me, &slot, me->comm, me->stream);
        ncclComm_t made = NULL;
        NCCL(ncclCommSplit(me->comm, (me->rank + round) % 2, 0, &made, NULL));
        try_comm(me, made, (uint64_t)round);
        NCCL(ncclCommDestroy(made));
        finish(me->stream);
        check(me, &slot);
    }
    leave(me);
    free_slot(&slot);
}

/* Thirty communicators at a time, each with a call in flight. */
static void many_comms(struct rank *me) {
    enum { COMMS = 30 };
    /* Kernels that wait for each other must all have a place on the device. */
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 1;
    join(me);
    ncclComm_t comms[COMMS];
    struct slot slots[COMMS];
    for (int comm = 0; comm < COMMS; comm++) {
        NCCL(ncclCommSplit(me->comm, 0, 0, &comms[comm], &config));
        make_slot(&slots[comm], 1 << 15);
    }
    for (int comm = 0; comm < COMMS; comm++) {
        struct call call = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 300, .seed = (uint64_t)comm};
        cudaStream_t stream = comm % 2 ? me->stream : me->other;
        prepare(me, &slots[comm], &call, stream);
        start(me, &slots[comm], comms[comm], stream);
    }
    finish(me->stream);
    finish(me->other);
    printf("rank %d: %d threads with %d communicators\n", me->rank, count_threads(), COMMS + 1);
    for (int comm = 0; comm < COMMS; comm++) {
        check(me, &slots[comm]);
        NCCL(ncclCommDestroy(comms[comm]));
        free_slot(&slots[comm]);
    }
    leave(me);
}

/* Four GPUs of one thread, whose communicators are made together. */
enum { DEVICES = 4 };

static void call_all(struct rank *ranks, uint64_t seed, bool is_group) {
    struct slot slots[DEVICES];
    for (int nth = 0; nth < DEVICES; nth++) {
        struct call call = {.collective = (enum collective)(seed % COLLECTIVES),
                            .type = ncclFloat32,
                            .count = 900,
                            .seed = seed,
                            .in_place = seed % COLLECTIVES == BCAST};
        CU(cuCtxSetCurrent(ranks[nth].context));
        make_slot(&slots[nth], SLOT_BYTES);
        prepare(&ranks[nth], &slots[nth], &call, ranks[nth].stream);
    }
    /* Calls find their GPU by the communicator. */
    CU(cuCtxSetCurrent(ranks[0].context));
    if (is_group) NCCL(ncclGroupStart());
    for (int nth = 0; nth < DEVICES; nth++)
        start(&ranks[nth], &slots[nth], ranks[nth].comm, ranks[nth].stream);
    if (is_group) NCCL(ncclGroupEnd());
    for (int nth = 0; nth < DEVICES; nth++) {
        CU(cuCtxSetCurrent(ranks[nth].context));
        finish(ranks[nth].stream);
        check(&ranks[nth], &slots[nth]);
        free_slot(&slots[nth]);
    }
}

static void one_thread(struct rank *me) {
    struct rank ranks[DEVICES];
    ncclComm_t comms[DEVICES];
    for (int nth = 0; nth < DEVICES; nth++) {
        ranks[nth] = (struct rank){.rank = nth, .world = DEVICES, .device = nth};
        CU(cuDevicePrimaryCtxRetain(&ranks[nth].context, nth));
        CU(cuCtxSetCurrent(ranks[nth].context));
        CU(cuStreamCreate(&ranks[nth].stream, NON_BLOCKING));
    }
    for (int way = 0; way < 2; way++) {
        if (way == 0) NCCL(ncclCommInitAll(comms, DEVICES, NULL));
        ncclUniqueId id;
        NCCL(ncclGetUniqueId(&id));
        if (way == 1) NCCL(ncclGroupStart());
        for (int nth = 0; way == 1 && nth < DEVICES; nth++) {
            CU(cuCtxSetCurrent(ranks[nth].context));
            NCCL(ncclCommInitRank(&comms[nth], DEVICES, id, nth));
        }
        if (way == 1) NCCL(ncclGroupEnd());
        for (int nth = 0; nth < DEVICES; nth++) {
            int device = -1;
            ranks[nth].comm = comms[nth];
            NCCL(ncclCommCuDevice(comms[nth], &device));
            CHECK(device == nth);
        }
        for (uint64_t seed = 0; seed < 18; seed++) call_all(ranks, seed, seed < 9);
        for (int nth = 0; nth < DEVICES; nth++) NCCL(ncclCommDestroy(comms[nth]));
    }
    for (int nth = 0; nth < DEVICES; nth++) {
        CU(cuCtxSetCurrent(ranks[nth].context));
        CU(cuStreamDestroy_v2(ranks[nth].stream));
        CU(cuDevicePrimaryCtxRelease_v2(nth));
    }
    CU(cuCtxSetCurrent(me->context));
}

static const struct test TESTS[] = {
    {"nested", nested},           {"wrong_in_group", wrong_in_group},
    {"arguments", arguments},     {"lists", lists},
    {"three_comms", three_comms}, {"split", split},
    {"split_often", split_often}, {"many_comms", many_comms},
    {"one_thread", one_thread},   {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
