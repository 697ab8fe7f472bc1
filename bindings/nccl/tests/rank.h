/* Helpers of the test programs of this folder: ranks as processes or threads, shared memory of all
 * ranks, and the functions of the driver.
 *
 * A program starts its ranks before its first call of the driver. They synchronize by a barrier in
 * shared memory, without NCCL. The first rank that fails ends the program; every program has a
 * timeout.
 */
#ifndef RANK_H_
#define RANK_H_

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

/* A function that not every program uses. */
#define HELPER __attribute__((unused)) static

/* The driver. */
typedef uintptr_t address_t;
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuCtxGetCurrent(void **context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(address_t *address, size_t bytes);
int cuMemFree_v2(address_t address);
int cuMemGetInfo_v2(size_t *available, size_t *all);
int cuMemcpyHtoD_v2(address_t into, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *into, address_t from, size_t bytes);
int cuMemcpyHtoDAsync_v2(address_t into, const void *from, size_t bytes, cudaStream_t stream);
int cuMemcpyDtoDAsync_v2(address_t into, address_t from, size_t bytes, cudaStream_t stream);
int cuMemsetD8Async(address_t into, unsigned char value, size_t bytes, cudaStream_t stream);
int cuStreamCreate(cudaStream_t *stream, unsigned flags);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamQuery(cudaStream_t stream);
int cuStreamWaitEvent(cudaStream_t stream, void *event, unsigned flags);
int cuStreamBeginCapture_v2(cudaStream_t stream, int mode);
int cuStreamEndCapture(cudaStream_t stream, void **graph);
int cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags);
int cuGraphLaunch(void *ready, cudaStream_t stream);
int cuGraphExecDestroy(void *ready);
int cuGraphDestroy(void *graph);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, cudaStream_t stream);

enum { NON_BLOCKING = 1, NOT_READY = 600, CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1 };

enum { MOST_RANKS = 8, MOST_IDS = 8 };

/* Memory that all ranks see. */
struct meeting {
    pthread_barrier_t barrier;
    ncclUniqueId ids[MOST_IDS];
    /* How far a test has come, for ranks that wait for one another outside of the barrier. */
    atomic_int stage;
    /* Set by a rank when it is done, for tests in which another rank ends early. */
    atomic_int done[MOST_RANKS];
    double times[MOST_RANKS];
};

struct rank {
    int rank;
    int world;
    bool is_thread;
    int device;
    struct meeting *met;
    void *context;
    /* The communicator of all ranks, once join() was called. */
    ncclComm_t comm;
    cudaStream_t stream;
    cudaStream_t other;
};

static _Thread_local int this_rank = -1;

/* Ends the program with the reason. */
__attribute__((format(printf, 3, 4), noreturn)) HELPER void fail(const char *file, int line,
                                                                 const char *text, ...) {
    char told[1500];
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(told, sizeof told, text, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d: %s:%d: %s\n", this_rank, file, line, told);
    fflush(stderr);
    _exit(1);
}

#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                          \
    do {                                          \
        if (!(condition)) FAIL("%s", #condition); \
    } while (0)

/* A call of NCCL that has to return `expected`. */
#define RETURNS(expected, call)                                                                    \
    do {                                                                                           \
        ncclResult_t returned = (call);                                                            \
        if (returned != (expected))                                                                \
            FAIL("%s: %d instead of %d: %s", #call, returned, (expected), ncclGetLastError(NULL)); \
    } while (0)

#define NCCL(call) RETURNS(ncclSuccess, call)

#define CU(call)                                                               \
    do {                                                                       \
        int returned_code = (call);                                            \
        if (returned_code != 0) FAIL("%s: CUresult %d", #call, returned_code); \
    } while (0)

HELPER double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* A barrier of all ranks. */
HELPER void meet(struct rank *me) { pthread_barrier_wait(&me->met->barrier); }

/* Waits until `stage` has been reached. The program's timeout bounds the wait. */
HELPER void await_stage(struct rank *me, int stage) {
    while (atomic_load(&me->met->stage) < stage) usleep(200);
}

HELPER void reach_stage(struct rank *me, int stage) { atomic_store(&me->met->stage, stage); }

/* Rank 0 makes the id of this number, and all ranks have it. */
HELPER ncclUniqueId share_id(struct rank *me, int number) {
    if (me->rank == 0) NCCL(ncclGetUniqueId(&me->met->ids[number]));
    meet(me);
    return me->met->ids[number];
}

/* A communicator of all ranks, in their order. */
HELPER ncclComm_t join_number(struct rank *me, int number) {
    ncclUniqueId id = share_id(me, number);
    ncclComm_t comm = NULL;
    NCCL(ncclCommInitRank(&comm, me->world, id, me->rank));
    return comm;
}

HELPER void join(struct rank *me) {
    me->comm = join_number(me, 0);
    int rank = -1, world = -1, device = -1;
    NCCL(ncclCommUserRank(me->comm, &rank));
    NCCL(ncclCommCount(me->comm, &world));
    NCCL(ncclCommCuDevice(me->comm, &device));
    CHECK(rank == me->rank && world == me->world && device == me->device);
}

HELPER void leave(struct rank *me) {
    CU(cuStreamSynchronize(me->stream));
    CU(cuStreamSynchronize(me->other));
    NCCL(ncclCommDestroy(me->comm));
    me->comm = NULL;
}

/* No call has failed so far. */
HELPER void check_healthy(ncclComm_t comm) {
    ncclResult_t error = ncclInternalError;
    NCCL(ncclCommGetAsyncError(comm, &error));
    if (error != ncclSuccess) FAIL("asynchronous error %d: %s", error, ncclGetLastError(comm));
}

HELPER void finish(cudaStream_t stream) { CU(cuStreamSynchronize(stream)); }

/* Threads of this process. */
HELPER int count_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks));) count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Waits until the process has at most this many threads, because threads end asynchronously. */
HELPER void await_threads(int most) {
    double end = milliseconds() + 10000;
    while (count_threads() > most) {
        if (milliseconds() > end) FAIL("%d threads instead of %d", count_threads(), most);
        usleep(1000);
    }
}

HELPER size_t free_memory(void) {
    size_t available, all;
    CU(cuMemGetInfo_v2(&available, &all));
    return available;
}

/* Makes a communicator of all ranks and ends it. */
HELPER void make_and_end(struct rank *me, int number) {
    NCCL(ncclCommDestroy(join_number(me, number)));
    meet(me);
}

/* Waits until every rank has so much free memory. Mappings of other ranks are freed after the goodbyes,
 * when the next communicator is made, so this makes one repeatedly.
 */
HELPER void await_memory(struct rank *me, size_t least) {
    double end = milliseconds() + 20000;
    for (bool is_enough = false; !is_enough;) {
        make_and_end(me, MOST_IDS - 1);
        size_t is_left = free_memory();
        me->met->times[me->rank] = (double)least - (double)is_left;
        meet(me);
        is_enough = true;
        for (int rank = 0; rank < me->world; rank++) is_enough &= me->met->times[rank] <= 0;
        bool is_late = milliseconds() > end;
        if (is_late && is_left < least) FAIL("%zu bytes are left", least - is_left);
        meet(me);
        usleep(50000);
    }
}

struct test {
    const char *name;
    void (*run)(struct rank *me);
};

static const struct test *the_test;

static void *be_rank(void *argument) {
    struct rank *me = argument;
    this_rank = me->rank;
    const char *record = getenv("TEST_RECORD");
    char file[500];
    if (record) {
        snprintf(file, sizeof file, "%s.%d", record, me->rank);
        setenv("MAYPOLE_NCCL_TRACE", file, 1);
    }
    /* What fails in the driver of the last rank, if that is a process. */
    const char *failing = getenv("TEST_FAIL");
    if (failing && me->rank == me->world - 1) setenv("FAKE_CUDA_FAIL", failing, 1);
    CU(cuInit(0));
    int devices = 0;
    CU(cuDeviceGetCount(&devices));
    const char *device = getenv("TEST_DEVICE");
    me->device = device ? atoi(device) : me->rank % devices;
    CU(cuDevicePrimaryCtxRetain(&me->context, me->device));
    CU(cuCtxSetCurrent(me->context));
    CU(cuStreamCreate(&me->stream, NON_BLOCKING));
    CU(cuStreamCreate(&me->other, NON_BLOCKING));
    the_test->run(me);
    CU(cuStreamDestroy_v2(me->stream));
    CU(cuStreamDestroy_v2(me->other));
    void *current = NULL;
    CU(cuCtxGetCurrent(&current));
    CHECK(current == me->context);
    CU(cuDevicePrimaryCtxRelease_v2(me->device));
    atomic_store(&me->met->done[me->rank], 1);
    return NULL;
}

static void run_threads(struct rank *ranks, int world) {
    pthread_t threads[MOST_RANKS];
    for (int rank = 0; rank < world; rank++)
        CHECK(pthread_create(&threads[rank], NULL, be_rank, &ranks[rank]) == 0);
    for (int rank = 0; rank < world; rank++) pthread_join(threads[rank], NULL);
}

/* The exit code of a rank that ends before its test has, by a signal or without destroying
 * anything. */
enum { ENDED_EARLY = 77 };

static int run_processes(struct rank *ranks, int world) {
    pid_t processes[MOST_RANKS];
    for (int rank = 0; rank < world; rank++) {
        processes[rank] = fork();
        CHECK(processes[rank] >= 0);
        if (processes[rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_rank(&ranks[rank]);
            exit(0);
        }
    }
    int failed = 0;
    for (int left = world; left > 0; left--) {
        int status;
        pid_t ended = wait(&status);
        CHECK(ended > 0);
        bool is_good =
            WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == ENDED_EARLY);
        bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (is_good || failed || (was_killed && strstr(the_test->name, "killed"))) continue;
        failed = 1;
        for (int rank = 0; rank < world; rank++) {
            if (processes[rank] == ended)
                fprintf(stderr, "rank %d ended with status %d\n", rank, status);
            if (processes[rank] != ended) kill(processes[rank], SIGKILL);
        }
    }
    return failed;
}

static void end_late(int signal) {
    (void)signal;
    static const char text[] = "the time of the test is over\n";
    ssize_t written = write(2, text, sizeof text - 1);
    _exit(written > 0 ? 3 : 4);
}

/* `PROGRAM TEST WORLD processes|threads`: runs a test of the table. */
HELPER int run_tests(int count, char **words, const struct test *tests) {
    if (count < 4) return 2;
    for (the_test = tests; the_test->name && strcmp(the_test->name, words[1]); the_test++) continue;
    int world = atoi(words[2]);
    if (!the_test->name || world < 1 || world > MOST_RANKS) return 2;
    const char *limit = getenv("TEST_LIMIT");
    signal(SIGALRM, end_late);
    alarm(limit ? (unsigned)atoi(limit) : 120);
    struct meeting *met =
        mmap(NULL, sizeof *met, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(met != MAP_FAILED);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_barrier_init(&met->barrier, &shared, (unsigned)world) == 0);
    bool are_threads = strcmp(words[3], "threads") == 0;
    static struct rank ranks[MOST_RANKS];
    for (int rank = 0; rank < world; rank++)
        ranks[rank] =
            (struct rank){.rank = rank, .world = world, .is_thread = are_threads, .met = met};
    int failed = 0;
    if (are_threads)
        run_threads(ranks, world);
    else
        failed = run_processes(ranks, world);
    if (!failed) printf("%s: right\n", words[1]);
    return failed;
}

#endif
