/* Every function of the C interface, between threads of one process. Exits with 0 if all is right. */
#include <maypole.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD 3
#define COUNT 1000

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, maypole_last_error());      \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)
#define OK(call) CHECK((call) == MAYPOLE_SUCCESS)

/* The number that rank `rank` brings at place `at`. */
static int32_t brings(int rank, int at) { return rank * 7919 + at * 31 - 400; }

static int32_t sum_at(int at) {
    int32_t sum = 0;
    for (int rank = 0; rank < WORLD; rank++) sum += brings(rank, at);
    return sum;
}

static void fill(int32_t *data, int rank, int count) {
    for (int at = 0; at < count; at++) data[at] = brings(rank, at);
}

static void reductions(maypole_comm_t comm, int rank) {
    int32_t mine[COUNT], other[COUNT];
    fill(mine, rank, COUNT);
    OK(maypole_all_reduce(mine, other, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    for (int at = 0; at < COUNT; at++) CHECK(other[at] == sum_at(at) && mine[at] == brings(rank, at));
    OK(maypole_all_reduce(mine, mine, COUNT, MAYPOLE_INT32, MAYPOLE_MAX, comm));
    for (int at = 0; at < COUNT; at++) CHECK(mine[at] == brings(WORLD - 1, at));
    fill(mine, rank, COUNT);
    OK(maypole_reduce(mine, rank == 1 ? other : NULL, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, 1, comm));
    for (int at = 0; rank == 1 && at < COUNT; at++) CHECK(other[at] == sum_at(at));
    OK(maypole_scan(mine, other, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    for (int at = 0; at < COUNT; at++) {
        int32_t sum = 0;
        for (int before = 0; before <= rank; before++) sum += brings(before, at);
        CHECK(other[at] == sum);
    }
    OK(maypole_exclusive_scan(mine, mine, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    for (int at = 0; at < COUNT; at++) {
        int32_t sum = 0;
        for (int before = 0; before < rank; before++) sum += brings(before, at);
        CHECK(mine[at] == (rank == 0 ? brings(0, at) : sum));
    }
    int32_t all[WORLD * COUNT], block[COUNT];
    fill(all, rank, WORLD * COUNT);
    OK(maypole_reduce_scatter(all, block, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    for (int at = 0; at < COUNT; at++) CHECK(block[at] == sum_at(rank * COUNT + at));
    OK(maypole_reduce_scatter(all, all + rank * COUNT, COUNT, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    CHECK(memcmp(all + rank * COUNT, block, sizeof block) == 0);
}

static void moves(maypole_comm_t comm, int rank) {
    int32_t mine[COUNT], all[WORLD * COUNT], again[WORLD * COUNT];
    fill(mine, rank, COUNT);
    OK(maypole_broadcast(rank == 2 ? mine : NULL, again, COUNT, MAYPOLE_INT32, 2, comm));
    for (int at = 0; at < COUNT; at++) CHECK(again[at] == brings(2, at));
    OK(maypole_all_gather(mine, all, COUNT, MAYPOLE_INT32, comm));
    for (int at = 0; at < WORLD * COUNT; at++) CHECK(all[at] == brings(at / COUNT, at % COUNT));
    memset(again, 0, sizeof again);
    memcpy(again + rank * COUNT, mine, sizeof mine);
    OK(maypole_all_gather(again + rank * COUNT, again, COUNT, MAYPOLE_INT32, comm));
    CHECK(memcmp(all, again, sizeof all) == 0);
    memset(again, 0, sizeof again);
    OK(maypole_gather(mine, rank == 0 ? again : NULL, COUNT, MAYPOLE_INT32, 0, comm));
    CHECK(rank != 0 || memcmp(all, again, sizeof all) == 0);
    int32_t block[COUNT];
    OK(maypole_scatter(rank == 0 ? all : NULL, block, COUNT, MAYPOLE_INT32, 0, comm));
    CHECK(memcmp(block, mine, sizeof mine) == 0);
    for (int to = 0; to < WORLD; to++)
        for (int at = 0; at < COUNT; at++) all[to * COUNT + at] = rank * 100 + to;
    OK(maypole_all_to_all(all, again, COUNT, MAYPOLE_INT32, comm));
    for (int at = 0; at < WORLD * COUNT; at++) CHECK(again[at] == at / COUNT * 100 + rank);
}

static void variable(maypole_comm_t comm, int rank) {
    size_t counts[WORLD] = {2, 0, 3};
    int32_t mine[3], all[5];
    fill(mine, rank, (int)counts[rank]);
    OK(maypole_all_gather_v(mine, all, counts, MAYPOLE_INT32, comm));
    CHECK(all[0] == brings(0, 0) && all[1] == brings(0, 1) && all[4] == brings(2, 2));
    /* A rank that sends nothing may pass a place within the output. */
    memset(all, 0, sizeof all);
    OK(maypole_all_gather_v(rank == 1 ? all + 1 : mine, all, counts, MAYPOLE_INT32, comm));
    CHECK(all[0] == brings(0, 0) && all[1] == brings(0, 1) && all[4] == brings(2, 2));
    int32_t whole[5], part[3];
    fill(whole, rank, 5);
    OK(maypole_reduce_scatter_v(whole, part, counts, MAYPOLE_INT32, MAYPOLE_SUM, comm));
    size_t first = rank == 0 ? 0 : 2;
    for (size_t at = 0; at < counts[rank]; at++) CHECK(part[at] == sum_at((int)(first + at)));
    /* Rank r sends s + 1 elements to rank s, and receives r + 1 from each. */
    size_t sent[WORLD] = {1, 2, 3}, received[WORLD];
    for (int from = 0; from < WORLD; from++) received[from] = (size_t)rank + 1;
    int32_t out[6], in[9];
    for (int at = 0; at < 6; at++) out[at] = rank;
    OK(maypole_all_to_all_v(out, sent, in, received, MAYPOLE_INT32, comm));
    for (int at = 0; at < WORLD * (rank + 1); at++) CHECK(in[at] == at / (rank + 1));
}

static void messages(maypole_comm_t comm, int rank) {
    double number = rank + 0.5;
    size_t from = 99, elements = 99;
    if (rank == 0) {
        OK(maypole_send(&number, 1, MAYPOLE_FLOAT64, 1, 5, comm));
        OK(maypole_recv(&number, 1, MAYPOLE_FLOAT64, 2, 6, comm));
        CHECK(number == 2.5);
    } else if (rank == 1) {
        OK(maypole_recv_any(&number, 1, MAYPOLE_FLOAT64, 5, &from, &elements, comm));
        CHECK(number == 0.5 && from == 0 && elements == 1);
    } else {
        OK(maypole_send(&number, 1, MAYPOLE_FLOAT64, 0, 6, comm));
    }
    OK(maypole_barrier(comm));
}

static void groups_and_memory(maypole_comm_t comm, int rank) {
    maypole_comm_t group, twin;
    OK(maypole_split(comm, rank == 1 ? -1 : 0, -rank, &group));
    CHECK((group == NULL) == (rank == 1));
    if (group != NULL) {
        CHECK(maypole_world(group) == 2 && maypole_rank(group) == (rank == 2 ? 0 : 1));
        OK(maypole_close(group));
    }
    OK(maypole_duplicate(comm, &twin));
    OK(maypole_set_timeout(twin, 60000));
    OK(maypole_set_deterministic(twin, 1));
    void *memory;
    OK(maypole_alloc(twin, 1 << 20, &memory));
    float *numbers = memory;
    for (int at = 0; at < 1 << 18; at++) numbers[at] = 1.0f;
    OK(maypole_all_reduce(numbers, numbers, 1 << 18, MAYPOLE_FLOAT32, MAYPOLE_SUM, twin));
    CHECK(numbers[0] == WORLD && numbers[(1 << 18) - 1] == WORLD);
    OK(maypole_free(twin, memory));
    CHECK(maypole_free(twin, memory) == MAYPOLE_INVALID);
    char text[64];
    size_t needed;
    OK(maypole_explain(twin, MAYPOLE_ALL_REDUCE, 1024, MAYPOLE_FLOAT32, text, sizeof text, &needed));
    CHECK(strlen(text) == sizeof text - 1 && needed > sizeof text);
    OK(maypole_close(twin));
}

static void errors(maypole_comm_t comm, int rank) {
    int32_t data[8] = {0};
    CHECK(maypole_all_reduce(data, data + 1, 4, MAYPOLE_INT32, MAYPOLE_SUM, comm) == MAYPOLE_INVALID);
    CHECK(strstr(maypole_last_error(), "overlap") != NULL);
    /* The block of another rank, and blocks with counts. */
    size_t ones[WORLD] = {1, 1, 1};
    int32_t *other = data + (rank + 1) % WORLD;
    CHECK(maypole_all_gather(other, data, 1, MAYPOLE_INT32, comm) == MAYPOLE_INVALID);
    CHECK(maypole_reduce_scatter(data, other, 1, MAYPOLE_INT32, MAYPOLE_SUM, comm) == MAYPOLE_INVALID);
    CHECK(maypole_all_to_all_v(data, ones, data, ones, MAYPOLE_INT32, comm) == MAYPOLE_INVALID);
    CHECK(strstr(maypole_last_error(), "overlap") != NULL);
    CHECK(maypole_all_reduce(NULL, data, 4, MAYPOLE_INT32, MAYPOLE_SUM, comm) == MAYPOLE_INVALID);
    CHECK(maypole_all_reduce(data, data, 4, 77, MAYPOLE_SUM, comm) == MAYPOLE_INVALID);
    CHECK(maypole_all_reduce(data, data, 4, MAYPOLE_INT32, 77, comm) == MAYPOLE_INVALID);
    CHECK(maypole_all_reduce(data, data, 4, MAYPOLE_INT32, MAYPOLE_SUM, NULL) == MAYPOLE_INVALID);
    CHECK(maypole_all_reduce(data, data, SIZE_MAX, MAYPOLE_INT32, MAYPOLE_SUM, comm) == MAYPOLE_INVALID);
    CHECK(maypole_all_reduce((char *)data + 1, (char *)data + 1, 4, MAYPOLE_INT32, MAYPOLE_SUM, comm) ==
          MAYPOLE_INVALID);
    CHECK(strstr(maypole_last_error(), "multiple of 4") != NULL);
    CHECK(maypole_broadcast(data, data, 4, MAYPOLE_INT32, 9, comm) == MAYPOLE_INVALID);
    CHECK(maypole_supports(MAYPOLE_FLOAT32, MAYPOLE_XOR) == 0 && maypole_supports(MAYPOLE_UINT8, MAYPOLE_XOR) == 1);
    CHECK(maypole_size(MAYPOLE_BFLOAT16) == 2 && maypole_size(99) == 0);
    CHECK(maypole_rank(NULL) == -1 && maypole_close(NULL) == MAYPOLE_INVALID);
    uint8_t truths[2] = {(uint8_t)(rank == 1), 1};
    OK(maypole_all_reduce(truths, truths, 2, MAYPOLE_BOOL, MAYPOLE_AND, comm));
    CHECK(truths[0] == 0 && truths[1] == 1);
    /* Nothing of that did harm. */
    OK(maypole_barrier(comm));
    /* One rank makes another call: all of them are told. */
    maypole_result_t result = rank == 0 ? maypole_barrier(comm)
                                        : maypole_all_reduce(data, data, 4, MAYPOLE_INT32, MAYPOLE_SUM, comm);
    CHECK(result == MAYPOLE_MISMATCH);
    CHECK(strstr(maypole_last_error(), "barrier") != NULL);
    CHECK(maypole_barrier(comm) == MAYPOLE_FAILED);
    CHECK(strcmp(maypole_result_string(result), "calls do not match") == 0);
}

static void *run(void *argument) {
    maypole_comm_t comm = argument;
    int rank = (int)maypole_rank(comm);
    CHECK(maypole_world(comm) == WORLD);
    reductions(comm, rank);
    moves(comm, rank);
    variable(comm, rank);
    messages(comm, rank);
    groups_and_memory(comm, rank);
    errors(comm, rank);
    maypole_close(comm);
    return NULL;
}

int main(void) {
    maypole_comm_t comms[WORLD];
    pthread_t threads[WORLD];
    OK(maypole_init_threads(comms, WORLD));
    for (int rank = 0; rank < WORLD; rank++) pthread_create(&threads[rank], NULL, run, comms[rank]);
    for (int rank = 0; rank < WORLD; rank++) pthread_join(threads[rank], NULL);
    printf("maypole %s: every call is right\n", maypole_version());
    return 0;
}
