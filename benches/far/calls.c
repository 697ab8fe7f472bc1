// What ranks.rs measures, of MPI.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROW = 10, ALONE = 9, SKIPPED = 2 };
enum { BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, COLLECTIVES };
static const char* names[] = {"broadcast", "reduce", "all-reduce", "all-gather", "reduce-scatter", "all-to-all"};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int by_time(const void* a, const void* b) {
    double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double latest(double mine) {
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static void call(int kind, const float* input, float* output, int block, int world) {
    switch (kind) {
    case BROADCAST: MPI_Bcast(output, block * world, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(input, output, block * world, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    case ALL_REDUCE: MPI_Allreduce(input, output, block * world, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(input, block, MPI_FLOAT, output, block, MPI_FLOAT, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(input, output, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(input, block, MPI_FLOAT, output, block, MPI_FLOAT, MPI_COMM_WORLD); break;
    }
}

static void measure(int kind, int bytes, int rank, int world) {
    int block = bytes / 4 / world > 0 ? bytes / 4 / world : 1;
    float* input = malloc((size_t)block * (size_t)world * 4);
    float* output = malloc((size_t)block * (size_t)world * 4);
    for (int i = 0; i < block * world; i++) input[i] = output[i] = 1;
    call(kind, input, output, block, world);
    double alone[ALONE];
    for (int i = 0; i < ALONE; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = latest(now()) + 0.03, rest = start - now();
        if (rest > 0) nanosleep(&(struct timespec){0, (long)(rest * 1e9)}, 0);
        call(kind, input, output, block, world);
        double end = now();
        alone[i] = (latest(kind == REDUCE && rank ? 0 : end) - start) * 1e6;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    for (int i = 0; i < ROW; i++) call(kind, input, output, block, world);
    MPI_Barrier(MPI_COMM_WORLD);
    double row = (now() - start) * 1e6 / ROW;
    qsort(alone + SKIPPED, ALONE - SKIPPED, sizeof *alone, by_time);
    if (rank == 0) {
        printf("%s %d %.1f %.1f\n", names[kind], block * world * 4, alone[SKIPPED + (ALONE - SKIPPED) / 2], row);
        fflush(stdout);
    }
    free(input);
    free(output);
}

int main(int count, char** words) {
    int rank, world, sizes[] = {64, 64 << 10, 1 << 20};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (int kind = 0; kind < COLLECTIVES; kind++)
        for (int size = 0; size < 3; size++) measure(kind, sizes[size], rank, world);
    MPI_Finalize();
}
