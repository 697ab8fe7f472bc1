/* What goes wrong is an error on all ranks, by a code of NCCL and with a sentence, and nobody waits
 * for ever. */
#include "calls.h"

enum { SLOT_BYTES = 1 << 16 };

static struct call sum_of(size_t count, uint64_t seed) {
    return (struct call){
        .collective = ALL_REDUCE, .type = ncclFloat32, .count = count, .seed = seed};
}

static void start_sum(struct rank *me, struct slot *slot, size_t count) {
    struct call call = sum_of(count, 1);
    make_slot(slot, SLOT_BYTES);
    prepare(me, slot, &call, me->stream);
    start(me, slot, me->comm, me->stream);
}

/* Waits for an error of the communicator, at most so many milliseconds. */
static ncclResult_t await_error(struct rank *me, double most) {
    ncclResult_t error = ncclSuccess;
    for (double end = milliseconds() + most; !error; usleep(1000)) {
        NCCL(ncclCommGetAsyncError(me->comm, &error));
        if (milliseconds() > end) FAIL("there is no error");
    }
    const char *told = ncclGetLastError(me->comm);
    printf("rank %d: error %d: %s\n", me->rank, error, told);
    CHECK(told && *told);
    return error;
}

static void abort_all(struct rank *me, struct slot *slot) {
    NCCL(ncclCommAbort(me->comm));
    finish(me->stream);
    free_slot(slot);
}

/* The ranks call something else: the count of one is another one. */
static void other_count(struct rank *me) {
    struct slot slot;
    join(me);
    make_slot(&slot, SLOT_BYTES);
    void *memory = (void *)slot.memory;
    size_t count = me->rank ? 100 : 101;
    ncclResult_t called =
        ncclAllReduce(memory, memory, count, ncclFloat32, ncclSum, me->comm, me->stream);
    /* The others may have found it already. */
    CHECK(called == ncclSuccess || called == ncclInvalidUsage || called == ncclRemoteError);
    ncclResult_t error = await_error(me, 20000);
    CHECK(error == ncclInvalidUsage || error == ncclRemoteError);
    meet(me);
    abort_all(me, &slot);
}

/* MAYPOLE_TIMEOUT is two seconds, and the last rank never calls. */
static void timeout(struct rank *me) {
    struct slot slot;
    join(me);
    if (me->rank == me->world - 1) {
        meet(me);
        NCCL(ncclCommAbort(me->comm));
        return;
    }
    start_sum(me, &slot, 100);
    double began = milliseconds();
    CHECK(await_error(me, 30000) == ncclRemoteError);
    CHECK(milliseconds() - began > 1000);
    meet(me);
    abort_all(me, &slot);
}

/* The last rank destroys its communicator, and the others call. */
static void left(struct rank *me) {
    struct slot slot;
    join(me);
    meet(me);
    if (me->rank == me->world - 1) {
        NCCL(ncclCommDestroy(me->comm));
        meet(me);
        return;
    }
    start_sum(me, &slot, 100);
    CHECK(await_error(me, 30000) == ncclRemoteError);
    meet(me);
    abort_all(me, &slot);
}

/* Init where the devices do not reach one another, or where a rank has no memory. */
static void no_init(struct rank *me) {
    ncclUniqueId id = share_id(me, 0);
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclCommInitRank(&comm, me->world, id, me->rank);
    printf("rank %d: %d: %s\n", me->rank, result, ncclGetLastError(NULL));
    CHECK(result != ncclSuccess && result != ncclInternalError && *ncclGetLastError(NULL));
    meet(me);
}

/* A kernel of the last rank fails, which ends its context. */
static void broken_context(struct rank *me) {
    struct slot slot;
    join(me);
    meet(me);
    if (me->rank == me->world - 1) {
        address_t memory;
        CU(cuMemAlloc_v2(&memory, 4096));
        void *bytes = (void *)memory;
        for (int nth = 0; nth < 1000; nth++) {
            ncclResult_t result =
                ncclAllReduce(bytes, bytes, 100, ncclFloat32, ncclSum, me->comm, me->stream);
            if (result) break;
            usleep(1000);
        }
        /* The real driver ends such a process soon after, too. */
        _exit(ENDED_EARLY);
    }
    start_sum(me, &slot, 100);
    CHECK(await_error(me, 30000) == ncclRemoteError);
    abort_all(me, &slot);
}

/* After a rank was killed, the others make a communicator without it. */
static void shrink_after_killed(struct rank *me) {
    struct slot slot;
    join(me);
    int last = me->world - 1;
    /* Before the death is known, so that the call itself is no error. */
    if (me->rank != last) start_sum(me, &slot, 100);
    meet(me);
    if (me->rank == last) raise(SIGKILL);
    CHECK(await_error(me, 30000) == ncclRemoteError);
    ncclComm_t made = NULL;
    NCCL(ncclCommShrink(me->comm, &last, 1, &made, NULL, NCCL_SHRINK_ABORT));
    NCCL(ncclCommDestroy(me->comm));
    finish(me->stream);
    struct rank view = *me;
    view.comm = made;
    NCCL(ncclCommUserRank(made, &view.rank));
    NCCL(ncclCommCount(made, &view.world));
    CHECK(view.world == last && view.rank == me->rank);
    struct call call = sum_of(300, 2);
    prepare(&view, &slot, &call, me->stream);
    start(&view, &slot, made, me->stream);
    finish(me->stream);
    check(&view, &slot);
    NCCL(ncclCommDestroy(made));
    free_slot(&slot);
}

/* A call that nobody joins is revoked, and the ranks go on with a communicator of all of them. */
static void revoked(struct rank *me) {
    struct slot slot;
    join(me);
    if (me->rank == 0)
        start_sum(me, &slot, 100);
    else
        make_slot(&slot, SLOT_BYTES);
    NCCL(ncclCommRevoke(me->comm, NCCL_REVOKE_DEFAULT));
    finish(me->stream);
    void *memory = (void *)slot.memory;
    ncclResult_t refused =
        ncclAllReduce(memory, memory, 1, ncclInt8, ncclSum, me->comm, me->stream);
    CHECK(refused == ncclInvalidUsage || refused == ncclInvalidArgument);
    ncclComm_t made = NULL;
    NCCL(ncclCommShrink(me->comm, NULL, 0, &made, NULL, NCCL_SHRINK_DEFAULT));
    NCCL(ncclCommDestroy(me->comm));
    struct call call = sum_of(300, 2);
    prepare(me, &slot, &call, me->stream);
    start(me, &slot, made, me->stream);
    finish(me->stream);
    check(me, &slot);
    NCCL(ncclCommDestroy(made));
    free_slot(&slot);
}

static const struct test TESTS[] = {
    {"other_count", other_count},
    {"timeout", timeout},
    {"left", left},
    {"no_init", no_init},
    {"broken_context", broken_context},
    {"shrink_after_killed", shrink_after_killed},
    {"revoked", revoked},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
