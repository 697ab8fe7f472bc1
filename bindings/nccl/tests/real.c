/* NVIDIA's library as a test sees it: each function says that it was called. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ncclComm {
    int rank, world;
};

/* One write a line: ranks share the stream. */
#define SAY(...)                                                          \
    do {                                                                  \
        char text[200];                                                   \
        int length = snprintf(text, sizeof text, "real: " __VA_ARGS__);   \
        if (write(1, text, (size_t)length) != length) return ncclSystemError; \
    } while (0)

static ncclComm_t made(int rank, int world) {
    ncclComm_t comm = malloc(sizeof *comm);
    comm->rank = rank;
    comm->world = world;
    return comm;
}

const char *ncclGetLastError(ncclComm_t comm) {
    return comm ? "of a communicator" : "a real error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    strcpy(id->internal, "a real name");
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    SAY("rank %d of %d by %s, %s\n", rank, world, id.internal, config ? "settings" : "plain");
    *comm = made(rank, world);
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config) {
    (void)config;
    SAY("rank %d splits %d %d\n", comm->rank, color, key);
    *part = color < 0 ? NULL : made(0, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    SAY("rank %d finalizes\n", comm->rank);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    SAY("rank %d of %d destroys\n", comm->rank, comm->world);
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    SAY("rank %d aborts\n", comm->rank);
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    *count = comm->world;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle) {
    SAY("rank %d registers %zu\n", comm->rank, bytes);
    *handle = memory;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    SAY("rank %d deregisters %p\n", comm->rank, handle);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    SAY("rank %d all_reduce %p %p %zu %d %d %p\n", comm->rank, send, recv, count, (int)type,
        (int)op, (void *)stream);
    return count == 13 ? ncclRemoteError : ncclSuccess;
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    SAY("rank %d reduce %zu to %d\n", comm->rank, count, root);
    /* By name, as NVIDIA's functions call each other. */
    return ncclAllReduce(send, recv, count, type, op, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    (void)send, (void)recv, (void)type, (void)stream;
    SAY("rank %d broadcast %zu from %d\n", comm->rank, count, root);
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    (void)send, (void)recv, (void)type, (void)stream;
    SAY("rank %d all_gather %zu\n", comm->rank, count);
    return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    (void)send, (void)recv, (void)type, (void)op, (void)stream;
    SAY("rank %d reduce_scatter %zu\n", comm->rank, count);
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    (void)type, (void)stream;
    SAY("rank %d sends %p %zu to %d\n", comm->rank, send, count, peer);
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    (void)type, (void)stream;
    SAY("rank %d receives %p %zu from %d\n", comm->rank, recv, count, peer);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    SAY("group\n");
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    SAY("end of group\n");
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *factor, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    (void)factor, (void)type, (void)residence;
    SAY("rank %d makes operation 77\n", comm->rank);
    *op = (ncclRedOp_t)77;
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    SAY("rank %d ends operation %d\n", comm->rank, (int)op);
    return ncclSuccess;
}
