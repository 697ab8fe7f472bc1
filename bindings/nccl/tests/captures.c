/* Graphs: a first call is captured, and graphs are launched beside plain calls of the same
 * communicator. */
#include "calls.h"

enum { SLOT_BYTES = 1 << 16, LAUNCHES = 100 };

static void *end_capture(struct rank *me, cudaStream_t stream) {
    void *graph = NULL, *ready = NULL;
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
    CU(cuGraphDestroy(graph));
    (void)me;
    return ready;
}

/* Numbers of one round: the graph adds up `in`, and its result goes to a place of its own. */
struct replay {
    address_t in, out, kept;
    size_t count;
};

static void make_replay(struct replay *replay, size_t count) {
    replay->count = count;
    CU(cuMemAlloc_v2(&replay->in, 8 * count));
    CU(cuMemAlloc_v2(&replay->out, 8 * count));
    CU(cuMemAlloc_v2(&replay->kept, 8 * count * LAUNCHES));
}

static void free_replay(struct replay *replay) {
    CU(cuMemFree_v2(replay->in));
    CU(cuMemFree_v2(replay->out));
    CU(cuMemFree_v2(replay->kept));
}

static void put_numbers(struct rank *me, struct replay *replay, int round, cudaStream_t stream) {
    uint64_t numbers[4096];
    for (size_t at = 0; at < replay->count; at++)
        numbers[at] = mixed((uint64_t)(round * 8 + me->rank) + at * 100000);
    CU(cuMemcpyHtoDAsync_v2(replay->in, numbers, 8 * replay->count, stream));
}

static void keep_numbers(struct replay *replay, int round, cudaStream_t stream) {
    address_t place = replay->kept + 8 * replay->count * (size_t)round;
    CU(cuMemcpyDtoDAsync_v2(place, replay->out, 8 * replay->count, stream));
}

static void check_numbers(struct rank *me, struct replay *replay, const char *what) {
    uint64_t numbers[4096];
    for (int round = 0; round < LAUNCHES; round++) {
        CU(cuMemcpyDtoH_v2(numbers, replay->kept + 8 * replay->count * (size_t)round,
                           8 * replay->count));
        for (size_t at = 0; at < replay->count; at++) {
            uint64_t sum = 0;
            for (int rank = 0; rank < me->world; rank++)
                sum += mixed((uint64_t)(round * 8 + rank) + at * 100000);
            if (numbers[at] != sum) FAIL("%s: round %d, number %zu", what, round, at);
        }
    }
}

static void sum_up(struct rank *me, struct replay *replay, cudaStream_t stream) {
    NCCL(ncclAllReduce((void *)replay->in, (void *)replay->out, replay->count, ncclUint64, ncclSum,
                       me->comm, stream));
}

/* The graph is launched on one stream, and plain calls are made on the other one, without any event
 * of the program between the two. */
static void launch_beside_calls(struct rank *me, void *graph, struct replay *captured) {
    struct replay plain;
    make_replay(&plain, 257);
    for (int round = 0; round < LAUNCHES; round++) {
        put_numbers(me, captured, round, me->stream);
        CU(cuGraphLaunch(graph, me->stream));
        keep_numbers(captured, round, me->stream);
        put_numbers(me, &plain, round, me->other);
        sum_up(me, &plain, me->other);
        keep_numbers(&plain, round, me->other);
    }
    finish(me->stream);
    finish(me->other);
    check_healthy(me->comm);
    check_numbers(me, captured, "graph");
    check_numbers(me, &plain, "plain calls");
    free_replay(&plain);
}

static void capture_in(struct rank *me, int mode) {
    struct replay captured;
    make_replay(&captured, 1000);
    join(me);
    CU(cuStreamBeginCapture_v2(me->stream, mode));
    sum_up(me, &captured, me->stream);
    void *graph = end_capture(me, me->stream);
    launch_beside_calls(me, graph, &captured);
    /* A second graph, which has calls that plain ones have made before. */
    CU(cuStreamBeginCapture_v2(me->stream, mode));
    sum_up(me, &captured, me->stream);
    sum_up(me, &captured, me->stream);
    void *second = end_capture(me, me->stream);
    launch_beside_calls(me, second, &captured);
    CU(cuGraphExecDestroy(graph));
    CU(cuGraphExecDestroy(second));
    leave(me);
    free_replay(&captured);
}

/* The first call of the communicator is captured. */
static void first_call(struct rank *me) { capture_in(me, CAPTURE_THREAD_LOCAL); }

/* torch.cuda.graph captures in global mode, which forbids much to all threads. */
static void in_global_mode(struct rank *me) { capture_in(me, CAPTURE_GLOBAL); }

/* As torch captures an asynchronous call: the stream of the group joins the capture by an event.
 * Messages are in it too, and another thread asks for errors meanwhile. */
struct question {
    ncclComm_t comm;
    atomic_bool ends;
};

static void *ask(void *argument) {
    struct question *question = argument;
    while (!atomic_load(&question->ends)) {
        ncclResult_t error;
        NCCL(ncclCommGetAsyncError(question->comm, &error));
        CHECK(error == ncclSuccess);
    }
    return NULL;
}

static void two_streams(struct rank *me) {
    struct replay sums, ring;
    make_replay(&sums, 500);
    make_replay(&ring, 300);
    void *forked = NULL, *joined = NULL;
    CU(cuEventCreate(&forked, 2));
    CU(cuEventCreate(&joined, 2));
    join(me);
    int next = (me->rank + 1) % me->world, previous = (me->rank + me->world - 1) % me->world;
    struct question question = {.comm = me->comm};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask, &question) == 0);
    CU(cuStreamBeginCapture_v2(me->stream, CAPTURE_GLOBAL));
    sum_up(me, &sums, me->stream);
    CU(cuEventRecord(forked, me->stream));
    CU(cuStreamWaitEvent(me->other, forked, 0));
    NCCL(ncclGroupStart());
    NCCL(ncclSend((void *)ring.in, ring.count, ncclUint64, next, me->comm, me->other));
    NCCL(ncclRecv((void *)ring.out, ring.count, ncclUint64, previous, me->comm, me->other));
    NCCL(ncclGroupEnd());
    CU(cuEventRecord(joined, me->other));
    CU(cuStreamWaitEvent(me->stream, joined, 0));
    sum_up(me, &sums, me->stream);
    void *graph = end_capture(me, me->stream);
    atomic_store(&question.ends, true);
    pthread_join(thread, NULL);
    for (int round = 0; round < LAUNCHES; round++) {
        put_numbers(me, &sums, round, me->stream);
        put_numbers(me, &ring, round, me->stream);
        CU(cuGraphLaunch(graph, me->stream));
        keep_numbers(&sums, round, me->stream);
        keep_numbers(&ring, round, me->stream);
    }
    finish(me->stream);
    check_healthy(me->comm);
    check_numbers(me, &sums, "sums of two streams");
    struct rank from = {.rank = previous, .world = 1};
    uint64_t numbers[4096];
    for (int round = 0; round < LAUNCHES; round++) {
        CU(cuMemcpyDtoH_v2(numbers, ring.kept + 8 * ring.count * (size_t)round, 8 * ring.count));
        for (size_t at = 0; at < ring.count; at++)
            CHECK(numbers[at] == mixed((uint64_t)(round * 8 + from.rank) + at * 100000));
    }
    CU(cuGraphExecDestroy(graph));
    leave(me);
    CU(cuEventDestroy_v2(forked));
    CU(cuEventDestroy_v2(joined));
    free_replay(&sums);
    free_replay(&ring);
}

/* Fifty calls in one graph, of which each has another count. */
static void long_graph(struct rank *me) {
    struct replay replays[50];
    join(me);
    for (int nth = 0; nth < 50; nth++) make_replay(&replays[nth], (size_t)(20 + nth));
    CU(cuStreamBeginCapture_v2(me->stream, CAPTURE_THREAD_LOCAL));
    NCCL(ncclGroupStart());
    for (int nth = 0; nth < 50; nth++) {
        sum_up(me, &replays[nth], me->stream);
        if (nth % 10 == 9) NCCL(ncclGroupEnd());
        if (nth % 10 == 9 && nth < 49) NCCL(ncclGroupStart());
    }
    void *graph = end_capture(me, me->stream);
    for (int round = 0; round < LAUNCHES; round++) {
        for (int nth = 0; nth < 50; nth++) put_numbers(me, &replays[nth], round, me->stream);
        CU(cuGraphLaunch(graph, me->stream));
        for (int nth = 0; nth < 50; nth++) keep_numbers(&replays[nth], round, me->stream);
    }
    finish(me->stream);
    for (int nth = 0; nth < 50; nth++) check_numbers(me, &replays[nth], "long graph");
    CU(cuGraphExecDestroy(graph));
    leave(me);
    for (int nth = 0; nth < 50; nth++) free_replay(&replays[nth]);
}

/* The communicator is destroyed before the graph that has its calls. */
static void graph_lives_longer(struct rank *me) {
    struct replay captured;
    make_replay(&captured, 100);
    join(me);
    CU(cuStreamBeginCapture_v2(me->stream, CAPTURE_THREAD_LOCAL));
    sum_up(me, &captured, me->stream);
    void *graph = end_capture(me, me->stream);
    launch_beside_calls(me, graph, &captured);
    leave(me);
    CU(cuGraphExecDestroy(graph));
    free_replay(&captured);
}

static const struct test TESTS[] = {
    {"first_call", first_call},
    {"in_global_mode", in_global_mode},
    {"two_streams", two_streams},
    {"long_graph", long_graph},
    {"graph_lives_longer", graph_lives_longer},
    {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
