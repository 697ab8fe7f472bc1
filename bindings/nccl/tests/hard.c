/* What programs do to a communicator besides calling: they end, fork, are killed, capture, meet
 * outside, and use other threads. */
#include "calls.h"

/* The second is more than the memory of a communicator that others may have open. */
enum { SLOT_BYTES = 1 << 17, GROUP_BYTES = 48 << 20 };

/* A call from its beginning to its end. */
static void whole(struct rank *me, struct slot *slot, const struct call *call) {
    prepare(me, slot, call, me->stream);
    start(me, slot, me->comm, me->stream);
    finish(me->stream);
    check(me, slot);
}

static struct call sum_of(size_t count, uint64_t seed) {
    return (struct call){
        .collective = ALL_REDUCE, .type = ncclFloat32, .count = count, .seed = seed};
}

/* Waits, at most so long, until the process of a rank is gone. Returns whether it is. */
static bool await_end(struct rank *me, int rank, double most) {
    for (double end = milliseconds() + most; milliseconds() < end; usleep(1000)) {
        if (atomic_load(&me->met->done[rank])) return true;
    }
    return false;
}

/* Rank 0 ends right after its last call, which is one that the others have not made. */
static void end_after_last(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    for (uint64_t round = 0; round < 5; round++) {
        struct call sum = sum_of(1000, round);
        whole(me, &slot, &sum);
    }
    struct call last = {.collective = BROADCAST, .type = ncclInt64, .count = 2000, .seed = 9};
    if (me->rank != 0) {
        bool is_gone = await_end(me, 0, 3000);
        printf("rank %d: rank 0 %s\n", me->rank, is_gone ? "has ended" : "waits for the others");
    }
    double began = milliseconds();
    whole(me, &slot, &last);
    double called = milliseconds();
    leave(me);
    printf("rank %d: the last call took %.0f ms, the end %.0f ms\n", me->rank, called - began,
           milliseconds() - called);
    free_slot(&slot);
}

/* The same, and nobody destroys anything: as a script that ends without destroying its group. */
static void end_without_destroy(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    struct call sum = sum_of(1000, 3);
    for (int round = 0; round < 5; round++) whole(me, &slot, &sum);
    if (!me->is_thread) {
        atomic_store(&me->met->done[me->rank], 1);
        exit(ENDED_EARLY);
    }
    leave(me);
    free_slot(&slot);
}

/* At exit without destroy, torch's older backend aborts. */
static void abort_at_end(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    struct call sum = sum_of(1000, 3);
    for (int round = 0; round < 5; round++) whole(me, &slot, &sum);
    NCCL(ncclGroupStart());
    NCCL(ncclCommAbort(me->comm));
    NCCL(ncclGroupEnd());
    free_slot(&slot);
}

/* Rank 0 makes a call of a new count and then meets the others elsewhere; they meet first and call
 * then. */
static void meet_between(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    for (int round = 0; round < 30; round++) {
        struct call call = sum_of((size_t)(300 + round), (uint64_t)round);
        call.collective = round % 3 == 2 ? REDUCE_SCATTER : round % 3 ? ALL_GATHER : ALL_REDUCE;
        call.type = round % 2 ? ncclFloat32 : ncclBfloat16;
        prepare(me, &slot, &call, me->stream);
        if (me->rank != round % me->world) meet(me);
        start(me, &slot, me->comm, me->stream);
        if (me->rank == round % me->world) meet(me);
        finish(me->stream);
        check(me, &slot);
    }
    leave(me);
    free_slot(&slot);
}

/* A rank is killed. The others are told, abort, and end. */
static void killed(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    struct call sum = sum_of(1000, 3);
    whole(me, &slot, &sum);
    bool is_last = me->rank == me->world - 1;
    prepare(me, &slot, &sum, me->stream);
    /* Before the death is known, so that the call itself is no error. */
    if (!is_last) start(me, &slot, me->comm, me->stream);
    meet(me);
    if (is_last) raise(SIGKILL);
    double began = milliseconds();
    ncclResult_t error = ncclSuccess;
    while (!error) {
        NCCL(ncclCommGetAsyncError(me->comm, &error));
        if (milliseconds() - began > 30000) FAIL("nobody says that a rank was killed");
        usleep(1000);
    }
    printf("rank %d: %.0f ms until the error %d: %s\n", me->rank, milliseconds() - began, error,
           ncclGetLastError(me->comm));
    CHECK(error == ncclRemoteError);
    NCCL(ncclCommAbort(me->comm));
    finish(me->stream);
    free_slot(&slot);
}

/* A child of a fork ends, or starts another program, or tries to use the communicator; the rank
 * goes on. */
static void forked(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    for (int round = 0; round < 4; round++) {
        struct call sum = sum_of((size_t)(100 + round), (uint64_t)round);
        whole(me, &slot, &sum);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            if (round == 0) exit(0);
            if (round == 1) execl("/bin/true", "true", (char *)NULL);
            if (round == 2) {
                void *memory = (void *)slot.memory;
                ncclResult_t result =
                    ncclAllReduce(memory, memory, 5, ncclInt8, ncclSum, me->comm, me->stream);
                _exit(result == ncclSuccess);
            }
            ncclResult_t error = ncclSuccess;
            ncclCommGetAsyncError(me->comm, &error);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status) FAIL("the child of round %d ended with status %d", round, status);
        whole(me, &slot, &sum);
    }
    leave(me);
    free_slot(&slot);
}

/* Each call comes from another thread, which has no context of its own. */
struct errand {
    struct rank *me;
    struct slot *slot;
};

static void *run_errand(void *argument) {
    struct errand *errand = argument;
    this_rank = errand->me->rank;
    start(errand->me, errand->slot, errand->me->comm, errand->me->stream);
    void *current = (void *)1;
    CU(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    return NULL;
}

static void other_threads(struct rank *me) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    join(me);
    for (int round = 0; round < 20; round++) {
        struct call sum = sum_of((size_t)(100 + round % 3), (uint64_t)round);
        sum.collective = round % 2 ? ALL_REDUCE : ALL_TO_ALL;
        prepare(me, &slot, &sum, me->stream);
        pthread_t thread;
        struct errand errand = {me, &slot};
        CHECK(pthread_create(&thread, NULL, run_errand, &errand) == 0);
        pthread_join(thread, NULL);
        finish(me->stream);
        check(me, &slot);
    }
    leave(me);
    free_slot(&slot);
}

/* The id comes from a process that is not rank 0. */
static void other_id(struct rank *me) {
    if (me->rank == me->world - 1) NCCL(ncclGetUniqueId(&me->met->ids[0]));
    meet(me);
    NCCL(ncclCommInitRank(&me->comm, me->world, me->met->ids[0], me->rank));
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    struct call sum = sum_of(50, 1);
    whole(me, &slot, &sum);
    leave(me);
    free_slot(&slot);
}

/* Init and split do not block; calls then do as always. */
static ncclResult_t settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        usleep(500);
    }
    return state;
}

static void without_blocking(struct rank *me) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId id = share_id(me, 0);
    ncclResult_t begun = ncclCommInitRankConfig(&me->comm, me->world, id, me->rank, &config);
    CHECK((begun == ncclSuccess || begun == ncclInProgress) && me->comm);
    CHECK(settle(me->comm) == ncclSuccess);
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    struct call sum = sum_of(50, 1);
    whole(me, &slot, &sum);
    ncclComm_t made = NULL;
    begun = ncclCommSplit(me->comm, 0, 0, &made, NULL);
    CHECK(begun == ncclSuccess || begun == ncclInProgress);
    CHECK(settle(me->comm) == ncclSuccess && made);
    NCCL(ncclCommDestroy(made));
    leave(me);
    free_slot(&slot);
}

/* What a communicator takes is given back: threads and memory of the device. */
static void use_and_end(struct rank *me, struct slot *slot, int round, bool aborts) {
    me->comm = join_number(me, round);
    struct call sum = sum_of((size_t)(100 + round), (uint64_t)round);
    whole(me, slot, &sum);
    ncclComm_t made = NULL;
    NCCL(ncclCommSplit(me->comm, 0, 0, &made, NULL));
    meet(me);
    NCCL(aborts ? ncclCommAbort(made) : ncclCommDestroy(made));
    NCCL(aborts ? ncclCommAbort(me->comm) : ncclCommDestroy(me->comm));
    meet(me);
}

static void take_and_give_back(struct rank *me, bool aborts) {
    struct slot slot;
    make_slot(&slot, SLOT_BYTES);
    make_and_end(me, MOST_IDS - 1);
    /* The null stream has a thread from now on. */
    finish(NULL);
    /* Threads of streams end a moment after their streams. */
    usleep(300000);
    int threads = count_threads();
    size_t memory = free_memory();
    for (int round = 0; round < 6; round++) {
        use_and_end(me, &slot, round, aborts);
        printf("rank %d: %zu bytes, %d threads\n", me->rank, free_memory(), count_threads());
    }
    /* An abort needs no other rank, so it does not always hear that the others have left: then the
     * memory that they may have open stays. */
    size_t stays = aborts ? 3 * GROUP_BYTES : 0;
    await_memory(me, memory - stays);
    if (!me->is_thread) await_threads(threads);
    free_slot(&slot);
}

static void nothing_left(struct rank *me) { take_and_give_back(me, false); }

static void nothing_left_of_aborts(struct rank *me) { take_and_give_back(me, true); }

static const struct test TESTS[] = {
    {"end_after_last", end_after_last},
    {"end_without_destroy", end_without_destroy},
    {"abort_at_end", abort_at_end},
    {"meet_between", meet_between},
    {"killed", killed},
    {"forked", forked},
    {"other_threads", other_threads},
    {"other_id", other_id},
    {"without_blocking", without_blocking},
    {"nothing_left", nothing_left},
    {"nothing_left_of_aborts", nothing_left_of_aborts},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
