/* Measures Maypole through its C interface with pb.h, the harness that measures other libraries.
 *
 *   cc -O2 -isystem FOLDER pb_maypole.c $(pkg-config --cflags --libs maypole) -o pb_maypole
 *   PB_CTL=/dev/shm/pb PB_RANKS=2 PB_PEER=maypole PB_TRANSPORT=shm ./pb_maypole
 *
 * FOLDER has pb.h, whose variables (PB_*) say what is measured. The program starts PB_RANKS
 * processes. With PB_TRANSPORT=tcp their bytes go over TCP; any other value leaves the choice to
 * Maypole. It prints a JSON object a line for each collective and size, and returns 0 if every
 * result was right. */
#define _GNU_SOURCE
#include "pb.h"
#include <maypole.h>

static maypole_comm_t comm;

static void check(maypole_result_t result) {
    if (result == MAYPOLE_SUCCESS) return;
    fprintf(stderr, "rank %d: %s\n", pb_rank, maypole_last_error());
    exit(1);
}

/* Rank 0 sends to rank 1, which answers. */
static void there_and_back(const float *send, float *receive, size_t count) {
    if (pb_rank == 0) {
        check(maypole_send(send, count, MAYPOLE_FLOAT32, 1, 0, comm));
        check(maypole_recv(receive, count, MAYPOLE_FLOAT32, 1, 0, comm));
    } else if (pb_rank == 1) {
        check(maypole_recv(receive, count, MAYPOLE_FLOAT32, 0, 0, comm));
        check(maypole_send(send, count, MAYPOLE_FLOAT32, 0, 0, comm));
    }
}

/* Makes one call. The largest buffer has `count` elements. */
static int run(int op, const float *send, float *receive, size_t count) {
    const maypole_data_type_t type = MAYPOLE_FLOAT32;
    const size_t block = count / (size_t)pb_size;
    float *data = pb_rank == 0 ? (float *)send : receive;
    switch (op) {
    case PB_BCAST: check(maypole_broadcast(data, data, count, type, 0, comm)); break;
    case PB_REDUCE: check(maypole_reduce(send, receive, count, type, MAYPOLE_SUM, 0, comm)); break;
    case PB_ALLREDUCE: check(maypole_all_reduce(send, receive, count, type, MAYPOLE_SUM, comm)); break;
    case PB_ALLGATHER: check(maypole_all_gather(send, receive, block, type, comm)); break;
    case PB_SCATTER: check(maypole_scatter(send, receive, block, type, 0, comm)); break;
    case PB_GATHER: check(maypole_gather(send, receive, block, type, 0, comm)); break;
    case PB_REDSCAT:
        check(maypole_reduce_scatter(send, receive, block, type, MAYPOLE_SUM, comm));
        break;
    case PB_A2A: check(maypole_all_to_all(send, receive, block, type, comm)); break;
    case PB_BARRIER: check(maypole_barrier(comm)); break;
    case PB_SENDRECV: there_and_back(send, receive, count); break;
    default: return 1;
    }
    return 0;
}

static int supports(int op) { return op < PB_NOPS; }

/* What all ranks of this program share: a job of its own, and its key. */
static void name_job(void) {
    unsigned char key[32];
    char text[2 * sizeof key + 1];
    FILE *random = fopen("/dev/urandom", "rb");
    if (random == NULL || fread(key, sizeof key, 1, random) != 1) {
        perror("/dev/urandom");
        exit(2);
    }
    fclose(random);
    for (size_t at = 0; at < sizeof key; at++) sprintf(text + 2 * at, "%02x", key[at]);
    setenv("MAYPOLE_JOB_KEY", text, 1);
    sprintf(text, "pb-%d", (int)getpid());
    setenv("MAYPOLE_JOB", text, 1);
    setenv("MAYPOLE_ADDRESS", "127.0.0.1", 1);
    if (strcmp(pb_envs("PB_TRANSPORT", "shm"), "tcp") == 0) setenv("MAYPOLE_TRANSPORT", "tcp", 1);
}

int main(void) {
    char text[16];
    name_job();
    pb_fork();
    sprintf(text, "%d", pb_rank);
    setenv("MAYPOLE_RANK", text, 1);
    sprintf(text, "%d", pb_size);
    setenv("MAYPOLE_WORLD", text, 1);
    check(maypole_init(&comm));
    int code = pb_main(run, supports);
    check(maypole_close(comm));
    return code;
}
