/* Communicators beside others: memory that is given back at other times, captures of the program, one thread
 * with several ranks of a GPU, calls of several new operations in one group. The driver of these tests waits
 * for all work of a device when memory is freed, and with FAKE_CUDA_LOAD_WAITS also when a module is loaded,
 * as CUDA's manual allows; with FAKE_CUDA_FREE_HOLDS no launch begins meanwhile. A global capture ends if any
 * thread allocates or frees in the usual mode, as the manual says. */
#include "calls.h"

enum { SLOT_BYTES = 1 << 15 };

/* What the program does in another thread while it captures. */
struct beside {
    struct rank me;
    ncclUniqueId id;
    ncclComm_t old;
    struct slot slots[2];
    atomic_int done;
};

static void *make_use_and_end(void *argument) {
    struct beside *beside = argument;
    struct rank *me = &beside->me;
    this_rank = me->rank;
    CU(cuCtxSetCurrent(me->context));
    ncclComm_t made = NULL, part = NULL;
    NCCL(ncclCommInitRank(&made, me->world, beside->id, me->rank));
    NCCL(ncclCommSplit(made, 0, 0, &part, NULL));
    /* New kinds of calls, with a module, a program and memory of their own. */
    start(me, &beside->slots[0], made, me->other);
    start(me, &beside->slots[1], part, me->other);
    finish(me->other);
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommFinalize(made));
    NCCL(ncclCommDestroy(made));
    NCCL(ncclCommAbort(beside->old));
    CU(cuCtxSetCurrent(NULL));
    atomic_store(&beside->done, 1);
    return NULL;
}

/* Each rank captures in global mode, torch's default, while another of its threads makes, uses and ends
 * communicators. One that was destroyed before is given back meanwhile, because the others leave it later. */
static void captured(struct rank *me) {
    static struct beside all[MOST_RANKS];
    struct beside *beside = &all[me->rank];
    join(me);
    *beside = (struct beside){.me = *me, .id = share_id(me, 1)};
    beside->old = join_number(me, 2);
    ncclComm_t destroyed = join_number(me, 3);
    for (int nth = 0; nth < 2; nth++) {
        struct call call = {.collective = nth ? REDUCE_SCATTER : ALL_REDUCE,
                            .type = nth ? ncclFloat16 : ncclInt64,
                            .op = nth ? ncclSum : ncclMax,
                            .count = 600,
                            .seed = (uint64_t)nth};
        make_slot(&beside->slots[nth], SLOT_BYTES);
        prepare(me, &beside->slots[nth], &call, me->other);
    }
    finish(me->other);
    address_t memory;
    CU(cuMemAlloc_v2(&memory, 4096));
    meet(me);
    if (me->rank == 0) NCCL(ncclCommDestroy(destroyed));
    CU(cuStreamBeginCapture_v2(me->stream, CAPTURE_GLOBAL));
    CU(cuMemsetD8Async(memory, 1, 4096, me->stream));
    meet(me);
    if (me->rank != 0) NCCL(ncclCommDestroy(destroyed));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, make_use_and_end, beside) == 0);
    pthread_join(thread, NULL);
    /* What was left to threads of the library is done, too. */
    usleep(500000);
    void *graph = NULL;
    CU(cuStreamEndCapture(me->stream, &graph));
    CU(cuGraphDestroy(graph));
    /* Ranks that are threads capture in one process. */
    meet(me);
    CU(cuMemFree_v2(memory));
    for (int nth = 0; nth < 2; nth++) {
        check(me, &beside->slots[nth]);
        free_slot(&beside->slots[nth]);
    }
    leave(me);
}

/* Waits until this rank has so much memory left. No communicator is made for that. */
static void await_free(size_t least, double most) {
    double end = milliseconds() + most;
    while (free_memory() < least) {
        if (milliseconds() > end)
            FAIL("%zu bytes are not free", least - free_memory());
        usleep(2000);
    }
}

static void make_parts(ncclComm_t comm, ncclComm_t *parts, int count) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 2;
    for (int nth = 0; nth < count; nth++) NCCL(ncclCommSplit(comm, 0, 0, &parts[nth], &config));
}

/* Rank 0, or the last one, destroys and aborts communicators so much earlier than the others that its
 * goodbye is over. Their memory is free when all have left. Before that, while a call of this rank waits for
 * another rank, communicators are made and ended. */
static void apart(struct rank *me) {
    struct slot slots[2];
    join(me);
    ncclComm_t first[2], last[2], part;
    size_t before = free_memory();
    make_parts(me->comm, first, 2);
    make_parts(me->comm, last, 2);
    meet(me);
    ncclComm_t *early = me->rank == 0 ? first : last, *late = me->rank == 0 ? last : first;
    NCCL(ncclCommDestroy(early[0]));
    NCCL(ncclCommAbort(early[1]));
    usleep(6500000);
    meet(me);
    NCCL(ncclCommDestroy(late[0]));
    NCCL(ncclCommAbort(late[1]));
    await_free(before, 5000);
    /* A split waits for no call, whatever is to be given back. */
    make_parts(me->comm, first, 1);
    for (int nth = 0; nth < 2; nth++) {
        struct call call = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 1000, .seed = (uint64_t)nth};
        make_slot(&slots[nth], SLOT_BYTES);
        prepare(me, &slots[nth], &call, me->stream);
    }
    finish(me->stream);
    meet(me);
    if (me->rank == 0) start(me, &slots[0], me->comm, me->stream);
    for (int round = 0; round < 6; round++) {
        make_parts(first[0], &part, 1);
        if (round == 0) start(me, &slots[1], part, me->other);
        finish(me->other);
        NCCL(ncclCommDestroy(part));
        meet(me);
    }
    if (me->rank != 0) start(me, &slots[0], me->comm, me->stream);
    finish(me->stream);
    for (int nth = 0; nth < 2; nth++) {
        check(me, &slots[nth]);
        free_slot(&slots[nth]);
    }
    NCCL(ncclCommDestroy(first[0]));
    await_free(before, 5000);
    leave(me);
}

/* The last rank is killed. Its process has nothing open any more, so the memory of the others is free. */
static void killed(struct rank *me) {
    ncclComm_t parts[3], two = NULL;
    join(me);
    bool is_last = me->rank == me->world - 1;
    NCCL(ncclCommSplit(me->comm, is_last ? NCCL_SPLIT_NOCOLOR : 0, 0, &two, NULL));
    size_t before = free_memory();
    make_parts(me->comm, parts, 3);
    meet(me);
    if (is_last) raise(SIGKILL);
    for (int nth = 0; nth < 3; nth++) NCCL(ncclCommAbort(parts[nth]));
    await_free(before, 10000);
    NCCL(ncclCommDestroy(two));
    NCCL(ncclCommAbort(me->comm));
}

enum { ONE_THREAD = 3 };

static void start_all(struct rank *ranks, struct slot *slots, uint64_t round, bool turned) {
    for (int at = 0; at < ONE_THREAD; at++) {
        int nth = turned ? ONE_THREAD - 1 - at : at;
        start(&ranks[nth], &slots[nth], ranks[nth].comm, ranks[nth].stream);
    }
    (void)round;
}

/* One thread has several ranks, of one GPU or of several: lists of devices with repetitions. */
static void one_thread(struct rank *me) {
    static const int DEVICES[][ONE_THREAD] = {{0, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 2}};
    for (size_t list = 0; list < sizeof DEVICES / sizeof *DEVICES; list++) {
        struct rank ranks[ONE_THREAD];
        ncclComm_t comms[ONE_THREAD];
        struct slot slots[2][ONE_THREAD];
        for (int nth = 0; nth < ONE_THREAD; nth++) {
            int device = DEVICES[list][nth];
            ranks[nth] = (struct rank){.rank = nth, .world = ONE_THREAD, .device = device};
            CU(cuDevicePrimaryCtxRetain(&ranks[nth].context, device));
            CU(cuCtxSetCurrent(ranks[nth].context));
            CU(cuStreamCreate(&ranks[nth].stream, NON_BLOCKING));
            for (int slot = 0; slot < 2; slot++) make_slot(&slots[slot][nth], SLOT_BYTES);
        }
        NCCL(ncclCommInitAll(comms, ONE_THREAD, DEVICES[list]));
        for (uint64_t round = 0; round < 8; round++) {
            static const ncclRedOp_t OPS[] = {ncclMax, ncclMin, ncclProd, ncclAvg};
            for (int slot = 0; slot < 2; slot++) {
                struct call call = {.collective = round % 3 == 2 ? ALL_GATHER : ALL_REDUCE,
                                    .type = round % 2 ? ncclFloat32 : ncclInt32,
                                    .op = slot ? OPS[round % 4] : ncclSum,
                                    .factor = round == 5 && !slot ? HOST_FACTOR : NO_FACTOR,
                                    .count = 400 + 10 * list + round,
                                    .seed = round * 2 + (uint64_t)slot};
                if (call.op == ncclAvg) call.type = ncclFloat32;
                for (int nth = 0; nth < ONE_THREAD; nth++) {
                    ranks[nth].comm = comms[nth];
                    CU(cuCtxSetCurrent(ranks[nth].context));
                    prepare(&ranks[nth], &slots[slot][nth], &call, ranks[nth].stream);
                }
            }
            /* A group with new operations of all ranks, and each rank's after those of others. */
            NCCL(ncclGroupStart());
            if (round % 2) {
                for (int nth = 0; nth < ONE_THREAD; nth++)
                    for (int slot = 0; slot < 2; slot++)
                        start(&ranks[nth], &slots[slot][nth], comms[nth], ranks[nth].stream);
            } else {
                start_all(ranks, slots[0], round, false);
                start_all(ranks, slots[1], round, true);
            }
            NCCL(ncclGroupEnd());
            for (int nth = 0; nth < ONE_THREAD; nth++) {
                CU(cuCtxSetCurrent(ranks[nth].context));
                finish(ranks[nth].stream);
                for (int slot = 0; slot < 2; slot++) check(&ranks[nth], &slots[slot][nth]);
            }
        }
        for (int nth = 0; nth < ONE_THREAD; nth++) {
            NCCL(ncclCommDestroy(comms[nth]));
            CU(cuCtxSetCurrent(ranks[nth].context));
            for (int slot = 0; slot < 2; slot++) free_slot(&slots[slot][nth]);
            CU(cuStreamDestroy_v2(ranks[nth].stream));
            CU(cuDevicePrimaryCtxRelease_v2(ranks[nth].device));
        }
    }
    CU(cuCtxSetCurrent(me->context));
}

/* Groups have the calls of two communicators in other orders on each rank, and operations that are new. */
static void crossed(struct rank *me) {
    join(me);
    ncclComm_t comms[2] = {me->comm, join_number(me, 1)};
    cudaStream_t streams[2] = {me->stream, me->other};
    struct slot slots[2];
    for (int nth = 0; nth < 2; nth++) make_slot(&slots[nth], SLOT_BYTES);
    static const ncclRedOp_t OPS[] = {ncclSum, ncclMax, ncclMin, ncclProd};
    for (uint64_t round = 0; round < 8; round++) {
        for (int nth = 0; nth < 2; nth++) {
            struct call call = {.collective = ALL_REDUCE,
                                .type = round < 4 ? ncclInt32 : ncclUint8,
                                .op = OPS[(round + (uint64_t)nth) % 4],
                                .count = 1000 + round,
                                .seed = round * 2 + (uint64_t)nth};
            prepare(me, &slots[nth], &call, streams[nth]);
        }
        NCCL(ncclGroupStart());
        for (int at = 0; at < 2; at++) {
            int nth = (at + me->rank) % 2;
            start(me, &slots[nth], comms[nth], streams[nth]);
        }
        NCCL(ncclGroupEnd());
        for (int nth = 0; nth < 2; nth++) {
            finish(streams[nth]);
            check(me, &slots[nth]);
        }
    }
    NCCL(ncclCommDestroy(comms[1]));
    leave(me);
    for (int nth = 0; nth < 2; nth++) free_slot(&slots[nth]);
}

/* A group with a call that cannot start starts none, also of other communicators, and leaves nothing for the
 * next group. */
static void none_of_a_group(struct rank *me) {
    struct slot slot;
    char byte;
    join(me);
    ncclComm_t other = join_number(me, 1);
    make_slot(&slot, SLOT_BYTES);
    struct call call = {.collective = ALL_REDUCE, .type = ncclFloat32, .count = 500, .seed = 4};
    void *memory = (void *)slot.memory;
    for (int way = 0; way < 3; way++) {
        prepare(me, &slot, &call, me->stream);
        NCCL(ncclGroupStart());
        start(me, &slot, me->comm, me->stream);
        if (way == 0) /* No such root. */
            RETURNS(ncclInvalidArgument, ncclBcast(memory, 1, ncclInt8, 9, other, me->stream));
        if (way == 1) /* A message to itself without its other end. */
            NCCL(ncclSend(memory, 1, ncclInt8, me->rank, other, me->stream));
        if (way == 2) { /* Its communicator is revoked before the group ends. */
            NCCL(ncclBcast(memory, 1, ncclInt8, 0, other, me->stream));
            NCCL(ncclCommRevoke(other, 0));
        }
        ncclResult_t ended = ncclGroupEnd();
        if (ended == ncclSuccess) FAIL("the group of way %d ends well", way);
        finish(me->stream);
        CU(cuMemcpyDtoH_v2(&byte, slot.memory + slot.out, 1));
        CHECK(byte == POISON);
        RETURNS(ncclInvalidUsage, ncclGroupEnd());
        NCCL(ncclGroupStart());
        NCCL(ncclGroupEnd());
        finish(me->stream);
        CU(cuMemcpyDtoH_v2(&byte, slot.memory + slot.out, 1));
        CHECK(byte == POISON);
        meet(me);
        start(me, &slot, me->comm, me->stream);
        finish(me->stream);
        check(me, &slot);
    }
    NCCL(ncclCommDestroy(other));
    leave(me);
    free_slot(&slot);
}

/* As many communicators as fit with the usual settings, and the sentence of the one that does not. */
static void until_full(struct rank *me) {
    enum { MOST = 64 };
    join(me);
    ncclComm_t made[MOST];
    int count = 0;
    ncclResult_t result = ncclSuccess;
    for (; count < MOST && !result; count++)
        result = ncclCommSplit(me->comm, 0, 0, &made[count], NULL);
    CHECK(result == ncclUnhandledCudaError);
    CHECK(strstr(ncclGetLastError(me->comm), "NCCL_MAX_CTAS"));
    for (int nth = 0; nth < count - 1; nth++) NCCL(ncclCommDestroy(made[nth]));
    leave(me);
}

/* MAYPOLE_TIMEOUT is short, and the last rank does not call: the stream ends, and from then on the error is
 * there. */
static void error_at_end(struct rank *me) {
    struct slot slot;
    join(me);
    make_slot(&slot, SLOT_BYTES);
    struct call call = {.collective = ALL_REDUCE, .type = ncclFloat32, .count = 1000, .seed = 4};
    prepare(me, &slot, &call, me->stream);
    finish(me->stream);
    meet(me);
    if (me->rank != me->world - 1) {
        start(me, &slot, me->comm, me->stream);
        while (cuStreamQuery(me->stream) == NOT_READY) continue;
        ncclResult_t error = ncclSuccess;
        NCCL(ncclCommGetAsyncError(me->comm, &error));
        CHECK(error == ncclRemoteError);
        printf("rank %d: %s\n", me->rank, ncclGetLastError(me->comm));
    }
    meet(me);
    NCCL(ncclCommAbort(me->comm));
    free_slot(&slot);
}

/* Teams as NCCL's headers for kernels ask for them on the host. */
static void teams(struct rank *me) {
    join(me);
    ncclTeam_t world = ncclTeamWorld(me->comm), near = ncclTeamLsa(me->comm);
    ncclTeam_t rail = ncclTeamRail(me->comm);
    CHECK(world.nRanks == me->world && world.rank == me->rank && world.stride == 1);
    CHECK(near.nRanks == me->world && near.rank == me->rank && near.stride == 1);
    CHECK(rail.nRanks == 1 && rail.rank == 0);
    for (int rank = 0; rank < me->world; rank++) {
        CHECK(ncclTeamRankToWorld(me->comm, near, rank) == rank);
        CHECK(ncclTeamRankToLsa(me->comm, world, rank) == rank);
    }
    CHECK(ncclTeamRankToWorld(me->comm, rail, 0) == me->rank);
    CHECK(ncclTeamRankToWorld(me->comm, world, me->world) == -1);
    CHECK(ncclTeamWorld(NULL).nRanks == 0);
    RETURNS(ncclInvalidUsage, ncclLsaBarrierCreateRequirement(near, 1, NULL, NULL));
    RETURNS(ncclInvalidUsage, ncclGinBarrierCreateRequirement(me->comm, near, 1, NULL, NULL));
    RETURNS(ncclInvalidUsage, ncclLLA2ACreateRequirement(1, 1, NULL, NULL));
    RETURNS(ncclInvalidUsage, ncclGinOutboxCreateRequirement(1, 1, NULL, NULL));
    RETURNS(ncclInvalidUsage, ncclGinInboxA2ACreateRequirement(near, 1, 1, NULL, NULL));
    CHECK(ncclLLA2ACalcSlots(100, 8) == 0);
    check_healthy(me->comm);
    leave(me);
}

static const struct test TESTS[] = {
    {"captured", captured},
    {"apart", apart},
    {"killed", killed},
    {"one_thread", one_thread},
    {"crossed", crossed},
    {"none_of_a_group", none_of_a_group},
    {"until_full", until_full},
    {"error_at_end", error_at_end},
    {"teams", teams},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
