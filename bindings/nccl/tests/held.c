/* Calls that other ranks have not made yet: each returns at once, and a second thread can ask for
 * errors, register memory and abort. When the last rank comes, everything is right. */
#include "calls.h"

enum { STREAMS = 2, MOST_CALLS = 300, SLOT_BYTES = 1 << 14 };

/* Milliseconds that a call may take. A machine that does nothing else needs far fewer. */
static double bound(void) {
    const char *text = getenv("TEST_BOUND");
    return text ? atof(text) : 500;
}

/* The longest call of a kind. */
struct longest {
    const char *what;
    double milliseconds;
};

static void note_time(struct longest *longest, double since) {
    double took = milliseconds() - since;
    if (took > longest->milliseconds) longest->milliseconds = took;
}

static void tell(struct rank *me, const struct longest *longest) {
    printf("rank %d: the longest %s took %.2f ms\n", me->rank, longest->what,
           longest->milliseconds);
    fflush(stdout);
    if (longest->milliseconds > bound())
        FAIL("%s took %f ms", longest->what, longest->milliseconds);
}

#define TIMED(longest, call)           \
    do {                               \
        double began = milliseconds(); \
        NCCL(call);                    \
        note_time(longest, began);     \
    } while (0)

static bool is_late(const struct rank *me) { return me->rank == me->world - 1; }

/* A thread that asks about a communicator again and again, as torch's watchdog and its allocator
 * do. */
struct watchdog {
    struct rank *me;
    ncclComm_t comm;
    atomic_bool ends;
    struct longest asked, registered;
    atomic_int times;
    pthread_t thread;
};

static void *watch(void *argument) {
    struct watchdog *dog = argument;
    static char memory[4096];
    while (!atomic_load(&dog->ends)) {
        ncclResult_t error = ncclInternalError;
        TIMED(&dog->asked, ncclCommGetAsyncError(dog->comm, &error));
        if (error) FAIL("asynchronous error %d: %s", error, ncclGetLastError(NULL));
        void *handle = NULL;
        double began = milliseconds();
        NCCL(ncclCommRegister(dog->comm, memory, sizeof memory, &handle));
        NCCL(ncclCommDeregister(dog->comm, handle));
        int ranks = 0;
        NCCL(ncclCommCount(dog->comm, &ranks));
        CHECK(ranks > 0 && ncclGetLastError(dog->comm));
        note_time(&dog->registered, began);
        dog->times += 1;
        usleep(1000);
    }
    return NULL;
}

static void start_watchdog(struct watchdog *dog, struct rank *me, ncclComm_t comm) {
    *dog = (struct watchdog){.me = me,
                             .comm = comm,
                             .asked = {"question for errors", 0},
                             .registered = {"registration", 0}};
    CHECK(pthread_create(&dog->thread, NULL, watch, dog) == 0);
}

static void stop_watchdog(struct watchdog *dog) {
    atomic_store(&dog->ends, true);
    pthread_join(dog->thread, NULL);
    CHECK(dog->times > 0);
    tell(dog->me, &dog->asked);
    tell(dog->me, &dog->registered);
}

/* The late rank waits until all others have made their calls. */
static void hold_back(struct rank *me) {
    if (is_late(me)) await_stage(me, me->world - 1);
}

static void let_go(struct rank *me) {
    if (!is_late(me)) atomic_fetch_add(&me->met->stage, 1);
}

/* Calls of which each has its own memory. */
struct many {
    struct rank *me;
    ncclComm_t comms[2];
    int calls;
    struct slot slots[MOST_CALLS];
};

static cudaStream_t stream_of(struct many *many, int nth) {
    return nth % STREAMS ? many->me->other : many->me->stream;
}

static void begin(struct many *many, struct rank *me, int calls, size_t (*count)(int)) {
    many->me = me;
    many->calls = calls;
    join(me);
    NCCL(ncclCommSplit(me->comm, 0, 0, &many->comms[1], NULL));
    many->comms[0] = me->comm;
    const enum collective kinds[] = {ALL_REDUCE, ALL_GATHER, BROADCAST, REDUCE_SCATTER};
    for (int nth = 0; nth < calls; nth++) {
        struct call call = {.collective = count ? ALL_REDUCE : kinds[nth % 4],
                            .type = ncclFloat32,
                            .count = count ? count(nth) : 100,
                            .seed = (uint64_t)nth,
                            .root = nth % me->world};
        make_slot(&many->slots[nth], SLOT_BYTES);
        prepare(me, &many->slots[nth], &call, me->stream);
    }
    finish(me->stream);
    meet(me);
    hold_back(me);
}

/* Checks everything, after the calls were made. */
static void end(struct many *many, bool is_split) {
    struct rank *me = many->me;
    let_go(me);
    finish(me->stream);
    finish(me->other);
    for (int nth = 0; nth < many->calls; nth++) check(me, &many->slots[nth]);
    check_healthy(me->comm);
    if (is_split) check_healthy(many->comms[1]);
    NCCL(ncclCommDestroy(many->comms[1]));
    leave(me);
    for (int nth = 0; nth < many->calls; nth++) free_slot(&many->slots[nth]);
}

/* start() is one call for the clock; it fails by itself. */
static void start_timed(struct many *many, int nth, ncclComm_t comm, struct longest *longest) {
    double began = milliseconds();
    start(many->me, &many->slots[nth], comm, stream_of(many, nth));
    note_time(longest, began);
}

static struct many *fresh(void) {
    struct many *many = calloc(1, sizeof *many);
    CHECK(many);
    return many;
}

static void calls(struct rank *me) {
    struct many *many = fresh();
    struct longest longest = {"held call", 0};
    struct watchdog dog;
    begin(many, me, 100, NULL);
    start_watchdog(&dog, me, me->comm);
    for (int nth = 0; nth < 100; nth++) start_timed(many, nth, me->comm, &longest);
    /* The watchdog goes on while the calls are held up. */
    int seen = dog.times;
    while (dog.times < seen + 5) usleep(500);
    if (!is_late(me)) CHECK(cuStreamQuery(me->stream) == NOT_READY);
    tell(me, &longest);
    stop_watchdog(&dog);
    end(many, false);
    free(many);
}

/* Groups of five calls. */
static void groups(struct rank *me) {
    struct many *many = fresh();
    struct longest longest = {"held group", 0};
    begin(many, me, 100, NULL);
    for (int nth = 0; nth < 100; nth += 5) {
        double began = milliseconds();
        NCCL(ncclGroupStart());
        for (int in_group = 0; in_group < 5; in_group++)
            start(me, &many->slots[nth + in_group], me->comm, stream_of(many, nth + in_group));
        NCCL(ncclGroupEnd());
        note_time(&longest, began);
    }
    tell(me, &longest);
    end(many, false);
    free(many);
}

/* Calls of a communicator and of one that was split from it, in turn. */
static void splits(struct rank *me) {
    struct many *many = fresh();
    struct longest longest = {"held call of a part", 0};
    begin(many, me, 100, NULL);
    for (int nth = 0; nth < 100; nth++) start_timed(many, nth, many->comms[nth / 2 % 2], &longest);
    tell(me, &longest);
    end(many, true);
    free(many);
}

/* A communicator is split, and its part is used, while a call of it waits on every rank. That of
 * the last rank is behind a call of another communicator, which the others make at the end. */
static void split_beside(struct rank *me) {
    struct slot slots[3];
    ncclComm_t part = NULL;
    join(me);
    ncclComm_t first = join_number(me, 1);
    for (int nth = 0; nth < 3; nth++) {
        struct call call = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 1000, .seed = (uint64_t)nth};
        make_slot(&slots[nth], SLOT_BYTES);
        prepare(me, &slots[nth], &call, me->stream);
    }
    finish(me->stream);
    if (is_late(me)) start(me, &slots[0], first, me->stream);
    start(me, &slots[1], me->comm, me->stream);
    NCCL(ncclCommSplit(me->comm, 0, 0, &part, NULL));
    start(me, &slots[2], part, me->other);
    finish(me->other);
    check(me, &slots[2]);
    CHECK(cuStreamQuery(me->stream) == NOT_READY);
    meet(me);
    if (!is_late(me)) start(me, &slots[0], first, me->other);
    finish(me->other);
    finish(me->stream);
    for (int nth = 0; nth < 2; nth++) check(me, &slots[nth]);
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommDestroy(first));
    leave(me);
    for (int nth = 0; nth < 3; nth++) free_slot(&slots[nth]);
}

static size_t changing(int nth) { return (size_t)(nth + 1); }

/* Three hundred counts, all new. */
static void counts(struct rank *me) {
    struct many *many = fresh();
    struct longest longest = {"held call of a new count", 0};
    begin(many, me, 300, changing);
    for (int nth = 0; nth < 300; nth++) start_timed(many, nth, me->comm, &longest);
    tell(me, &longest);
    end(many, false);
    free(many);
}

/* Groups of messages with counts that change: those of a mixture of experts. */
static void messages(struct rank *me) {
    enum { ROUNDS = 60, ROOM = 4096 };
    struct longest longest = {"held group of messages", 0};
    size_t bytes = (size_t)(ROUNDS * me->world * ROOM);
    address_t out, in;
    char *host = malloc(bytes);
    CHECK(host);
    join(me);
    CU(cuMemAlloc_v2(&out, bytes));
    CU(cuMemAlloc_v2(&in, bytes));
    for (size_t at = 0; at < bytes; at++) host[at] = (char)(at / ROOM * 7 + (size_t)me->rank * 50);
    CU(cuMemcpyHtoD_v2(out, host, bytes));
    meet(me);
    hold_back(me);
    for (int round = 0; round < ROUNDS; round++) {
        double began = milliseconds();
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < me->world; peer++) {
            size_t at = (size_t)((round * me->world + peer) * ROOM);
            size_t sent = mixed((uint64_t)(round * 100 + me->rank * 10 + peer)) % ROOM;
            size_t received = mixed((uint64_t)(round * 100 + peer * 10 + me->rank)) % ROOM;
            NCCL(ncclSend((void *)(out + at), sent, ncclInt8, peer, me->comm, me->stream));
            NCCL(ncclRecv((void *)(in + at), received, ncclInt8, peer, me->comm, me->stream));
        }
        NCCL(ncclGroupEnd());
        note_time(&longest, began);
    }
    tell(me, &longest);
    let_go(me);
    finish(me->stream);
    check_healthy(me->comm);
    CU(cuMemcpyDtoH_v2(host, in, bytes));
    for (int round = 0; round < ROUNDS; round++) {
        for (int peer = 0; peer < me->world; peer++) {
            size_t at = (size_t)((round * me->world + peer) * ROOM);
            size_t received = mixed((uint64_t)(round * 100 + peer * 10 + me->rank)) % ROOM;
            size_t from = (size_t)(round * me->world + me->rank) * 7 + (size_t)peer * 50;
            for (size_t byte = 0; byte < received; byte++) CHECK(host[at + byte] == (char)from);
        }
    }
    leave(me);
    CU(cuMemFree_v2(out));
    CU(cuMemFree_v2(in));
    free(host);
}

static void *abort_soon(void *argument) {
    struct rank *me = argument;
    this_rank = me->rank;
    /* Not for the order: so that the other thread waits when it is aborted. */
    usleep(100000);
    struct longest longest = {"abort", 0};
    TIMED(&longest, ncclCommAbort(me->comm));
    tell(me, &longest);
    me->met->times[me->rank] = milliseconds();
    return NULL;
}

/* The last rank never calls. A second thread aborts what the others have started, and all go on
 * with a new communicator. */
static void aborted(struct rank *me) {
    struct slot slots[100];
    struct longest longest = {"held call", 0};
    join(me);
    for (int nth = 0; nth < 100; nth++) {
        struct call call = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 100, .seed = (uint64_t)nth};
        make_slot(&slots[nth], SLOT_BYTES);
        prepare(me, &slots[nth], &call, me->stream);
    }
    finish(me->stream);
    meet(me);
    if (is_late(me)) {
        await_stage(me, me->world - 1);
        TIMED(&longest, ncclCommAbort(me->comm));
    } else {
        for (int nth = 0; nth < 100; nth++) {
            double began = milliseconds();
            start(me, &slots[nth], me->comm, nth % 2 ? me->other : me->stream);
            note_time(&longest, began);
        }
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_soon, me) == 0);
        finish(me->stream);
        finish(me->other);
        double ended = milliseconds();
        pthread_join(thread, NULL);
        double later = ended - me->met->times[me->rank];
        printf("rank %d: the streams were done %.2f ms after the abort\n", me->rank, later);
        if (later > 2000) FAIL("the streams were done %f ms after the abort", later);
        let_go(me);
    }
    tell(me, &longest);
    meet(me);
    me->comm = join_number(me, 1);
    prepare(me, &slots[0], &slots[0].call, me->stream);
    start(me, &slots[0], me->comm, me->stream);
    finish(me->stream);
    check(me, &slots[0]);
    leave(me);
    for (int nth = 0; nth < 100; nth++) free_slot(&slots[nth]);
}

static const struct test TESTS[] = {
    {"calls", calls},       {"groups", groups},   {"splits", splits}, {"counts", counts},
    {"messages", messages}, {"aborted", aborted}, {"split_beside", split_beside},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
