/* What may happen to a communicator besides calls: it is revoked and shrunk, its handle is used
 * after its end, its ranks share a GPU, and its name is the same in every process. */
#include "calls.h"

enum { SLOT_BYTES = 1 << 17 };

static void sums(struct rank *view, ncclComm_t comm, uint64_t seed) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    struct call call = {.collective = ALL_REDUCE, .type = ncclFloat32, .count = 700, .seed = seed};
    prepare(view, &slot, &call, view->stream);
    start(view, &slot, comm, view->stream);
    finish(view->stream);
    check(view, &slot);
    free_slot(&slot);
}

/* The rank in another communicator. */
static struct rank within(const struct rank *me, ncclComm_t comm) {
    struct rank view = *me;
    view.comm = comm;
    NCCL(ncclCommUserRank(comm, &view.rank));
    NCCL(ncclCommCount(comm, &view.world));
    return view;
}

/* The last rank makes no call. The others give up, and go on without it; twice. */
static void shrunk(struct rank *me) {
    join(me);
    ncclComm_t made = (ncclComm_t)1;
    int last = me->world - 1, none = -1, all = me->world;
    RETURNS(ncclInvalidArgument, ncclCommShrink(me->comm, &me->rank, 1, &made, NULL, 0));
    RETURNS(ncclInvalidArgument, ncclCommShrink(me->comm, &none, 1, &made, NULL, 0));
    RETURNS(ncclInvalidArgument, ncclCommShrink(me->comm, &all, 1, &made, NULL, 0));
    RETURNS(ncclInvalidArgument, ncclCommShrink(me->comm, &none, 1, NULL, NULL, 0));
    if (me->rank != last) {
        struct slot slot;
        make_slot(&slot, SLOT_BYTES);
        struct call call = {.collective = ALL_REDUCE, .type = ncclFloat32, .count = 700};
        prepare(me, &slot, &call, me->stream);
        start(me, &slot, me->comm, me->stream);
        NCCL(ncclCommShrink(me->comm, &last, 1, &made, NULL, NCCL_SHRINK_ABORT));
        finish(me->stream);
        struct rank view = within(me, made);
        CHECK(view.rank == me->rank && view.world == me->world - 1);
        sums(&view, made, 1);
        ncclComm_t again = NULL;
        NCCL(ncclCommShrink(made, NULL, 0, &again, NULL, NCCL_SHRINK_DEFAULT));
        sums(&view, again, 2);
        NCCL(ncclCommDestroy(made));
        sums(&view, again, 3);
        NCCL(ncclCommDestroy(again));
        NCCL(ncclCommAbort(me->comm));
        free_slot(&slot);
    }
    meet(me);
    if (me->rank == last) NCCL(ncclCommAbort(me->comm));
}

static void revoked(struct rank *me) {
    join(me);
    sums(me, me->comm, 1);
    meet(me);
    ncclComm_t made = NULL;
    int number = 0;
    ncclResult_t error = ncclInternalError;
    RETURNS(ncclInvalidArgument, ncclCommRevoke(me->comm, 1));
    NCCL(ncclCommRevoke(me->comm, NCCL_REVOKE_DEFAULT));
    NCCL(ncclCommRevoke(me->comm, NCCL_REVOKE_DEFAULT));
    NCCL(ncclCommGetAsyncError(me->comm, &error));
    CHECK(error == ncclSuccess);
    RETURNS(ncclInvalidUsage, ncclBcast((void *)64, 1, ncclInt8, 0, me->comm, me->stream));
    RETURNS(ncclInvalidUsage, ncclCommFinalize(me->comm));
    RETURNS(ncclInvalidUsage, ncclCommSplit(me->comm, 0, 0, &made, NULL));
    NCCL(ncclCommCount(me->comm, &number));
    CHECK(number == me->world);
    NCCL(ncclCommShrink(me->comm, NULL, 0, &made, NULL, NCCL_SHRINK_DEFAULT));
    sums(me, made, 2);
    NCCL(ncclCommDestroy(made));
    NCCL(ncclCommDestroy(me->comm));
}

/* A handle is refused after its end, also when another communicator was made since. */
static void handles(struct rank *me) {
    join(me);
    ncclComm_t old = me->comm;
    int number;
    void *token = NULL;
    ncclResult_t error;
    sums(me, old, 1);
    NCCL(ncclCommFinalize(old));
    RETURNS(ncclInvalidArgument, ncclCommFinalize(old));
    RETURNS(ncclInvalidUsage, ncclBcast((void *)64, 1, ncclInt8, 0, old, me->stream));
    NCCL(ncclCommDestroy(old));
    me->comm = join_number(me, 1);
    CHECK(me->comm != old);
    RETURNS(ncclInvalidArgument, ncclCommDestroy(old));
    RETURNS(ncclInvalidArgument, ncclCommAbort(old));
    RETURNS(ncclInvalidArgument, ncclCommUserRank(old, &number));
    RETURNS(ncclInvalidArgument, ncclCommGetAsyncError(old, &error));
    RETURNS(ncclInvalidArgument, ncclCommRegister(old, old, 8, &token));
    RETURNS(ncclInvalidArgument, ncclAllReduce(old, old, 1, ncclInt8, ncclSum, old, me->stream));
    RETURNS(ncclInvalidArgument, ncclRedOpDestroy(ncclAvg, me->comm));
    NCCL(ncclCommDeregister(old, NULL));
    NCCL(ncclCommDestroy(NULL));
    NCCL(ncclCommAbort(NULL));
    sums(me, me->comm, 2);
    leave(me);
}

/* Threads of a process on one GPU: streams on which they would wait for one another are refused. */
static void shared(struct rank *me) {
    join(me);
    CHECK(me->device == 0);
    void *memory = (void *)64;
    for (uintptr_t stream = 0; stream < 2; stream++) {
        RETURNS(ncclInvalidUsage,
                ncclBcast(memory, 1, ncclInt8, 0, me->comm, (cudaStream_t)stream));
        CHECK(strstr(ncclGetLastError(NULL), "default stream"));
        RETURNS(ncclInvalidUsage,
                ncclSend(memory, 1, ncclInt8, 0, me->comm, (cudaStream_t)stream));
    }
    meet(me);
    sums(me, me->comm, 1);
    ncclComm_t made = NULL;
    NCCL(ncclCommSplit(me->comm, 0, -me->rank, &made, NULL));
    RETURNS(ncclInvalidUsage, ncclBcast(memory, 1, ncclInt8, 0, made, NULL));
    struct rank view = within(me, made);
    sums(&view, made, 2);
    meet(me);
    NCCL(ncclCommDestroy(made));
    leave(me);
}

/* The communicator is usable once it says so. */
static void without_waiting(struct rank *me) {
    ncclUniqueId id = share_id(me, 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t error = ncclInternalError;
    if (me->rank != 0) meet(me);
    RETURNS(ncclInProgress, ncclCommInitRankConfig(&me->comm, me->world, id, me->rank, &config));
    CHECK(me->comm);
    if (me->rank == 0) {
        /* The others have not even begun. */
        RETURNS(ncclInvalidArgument, ncclBcast((void *)64, 1, ncclInt8, 0, me->comm, me->stream));
        meet(me);
    }
    for (error = ncclInProgress; error == ncclInProgress; usleep(100))
        NCCL(ncclCommGetAsyncError(me->comm, &error));
    CHECK(error == ncclSuccess);
    sums(me, me->comm, 1);
    ncclComm_t made = (ncclComm_t)1;
    RETURNS(ncclInProgress, ncclCommSplit(me->comm, me->rank, 0, &made, NULL));
    for (error = ncclInProgress; error == ncclInProgress; usleep(100))
        NCCL(ncclCommGetAsyncError(me->comm, &error));
    CHECK(error == ncclSuccess && made && made != (ncclComm_t)1);
    RETURNS(ncclInProgress, ncclCommFinalize(made));
    for (error = ncclInProgress; error == ncclInProgress; usleep(100))
        NCCL(ncclCommGetAsyncError(made, &error));
    CHECK(error == ncclSuccess);
    NCCL(ncclCommDestroy(made));
    leave(me);
}

/* Rank 0 is never joined. Another thread ends its wait. */
static void *abort_join(void *argument) {
    struct rank *me = argument;
    ncclResult_t error = ncclInternalError;
    while (!*(ncclComm_t volatile *)&me->comm) usleep(100);
    NCCL(ncclCommGetAsyncError(me->comm, &error));
    CHECK(error == ncclInProgress);
    NCCL(ncclCommAbort(me->comm));
    return NULL;
}

static void never_joined(struct rank *me) {
    ncclUniqueId id = share_id(me, 0);
    if (me->rank == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_join, me) == 0);
        RETURNS(ncclRemoteError, ncclCommInitRank(&me->comm, me->world, id, 0));
        pthread_join(thread, NULL);
    }
    meet(me);
}

/* Rank 0 splits alone. Another thread aborts the communicator while the split waits. */
static void *abort_split(void *argument) {
    struct rank *me = argument;
    this_rank = me->rank;
    /* Not for the order: so that the split waits when it is aborted. */
    usleep(100000);
    double began = milliseconds();
    NCCL(ncclCommAbort(me->comm));
    double took = milliseconds() - began;
    printf("rank %d: the abort took %.0f ms\n", me->rank, took);
    if (took > 20000) FAIL("the abort took %f ms", took);
    return NULL;
}

static void never_split(struct rank *me) {
    join(me);
    meet(me);
    if (me->rank == 0) {
        pthread_t thread;
        ncclComm_t made = NULL;
        CHECK(pthread_create(&thread, NULL, abort_split, me) == 0);
        RETURNS(ncclRemoteError, ncclCommSplit(me->comm, 0, 0, &made, NULL));
        pthread_join(thread, NULL);
        CHECK(made == NULL);
    }
    meet(me);
    if (me->rank != 0) NCCL(ncclCommAbort(me->comm));
}

static const struct test TESTS[] = {
    {"shrunk", shrunk},
    {"revoked", revoked},
    {"handles", handles},
    {"shared", shared},
    {"without_waiting", without_waiting},
    {"never_joined", never_joined},
    {"never_split", never_split},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
