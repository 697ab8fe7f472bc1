/* One rank on each of several hosts, as a launcher starts them: rank 0 makes the name of the group and passes it
 * on by a file. `hosts RANK WORLD FILE`: prints what making the communicator returns, after how long, and why.
 * Then the ranks sum a number. */
#include "rank.h"

int main(int count, char **words) {
    if (count != 4) return 2;
    signal(SIGALRM, end_late);
    alarm(100);
    int rank = atoi(words[1]), world = atoi(words[2]);
    this_rank = rank;
    char name[500];
    snprintf(name, sizeof name, "%s.tmp", words[3]);
    ncclUniqueId id;
    void *context;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    ncclComm_t comm = NULL;
    double began = milliseconds();
    if (rank == 0) {
        ncclResult_t made = ncclGetUniqueId(&id);
        if (made) {
            printf("id: %d: %s\n", made, ncclGetLastError(NULL));
            return 0;
        }
        FILE *file = fopen(name, "w");
        CHECK(file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
        CHECK(rename(name, words[3]) == 0);
    } else {
        FILE *file;
        while (!(file = fopen(words[3], "r"))) usleep(1000);
        CHECK(fread(&id, sizeof id, 1, file) == 1);
        fclose(file);
    }
    printf("address: %s\n", id.internal + 48);
    ncclResult_t result = ncclCommInitRank(&comm, world, id, rank);
    printf("init: %d after %.1f s: %s\n", result, (milliseconds() - began) / 1000,
           ncclGetLastError(NULL));
    if (result == ncclSuccess) {
        address_t number;
        double value = rank + 1;
        CU(cuMemAlloc_v2(&number, sizeof value));
        CU(cuMemcpyHtoD_v2(number, &value, sizeof value));
        NCCL(ncclAllReduce((void *)number, (void *)number, 1, ncclDouble, ncclSum, comm, NULL));
        CU(cuStreamSynchronize(NULL));
        CU(cuMemcpyDtoH_v2(&value, number, sizeof value));
        CHECK(value == world * (world + 1) / 2);
        NCCL(ncclCommDestroy(comm));
    }
    return 0;
}
