/* A group whose GPUs do not reach each other: its calls are those of another library. */
#include "calls.h"

static void forwarded(struct rank *me) {
    join(me);
    char *memory = (char *)0x10000;
    void *token = NULL;
    ncclComm_t part = NULL, none = (ncclComm_t)1;
    float factor = 2;
    ncclRedOp_t op;
    NCCL(ncclCommRegister(me->comm, memory, 99, &token));
    NCCL(ncclAllReduce(memory, memory, 5, ncclFloat8e4m3, ncclMax, me->comm, NULL));
    NCCL(ncclGroupStart());
    NCCL(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, me->comm));
    NCCL(ncclAllReduce(memory, memory, 7, ncclFloat32, op, me->comm, me->stream));
    NCCL(ncclRedOpDestroy(op, me->comm));
    NCCL(ncclSend(memory, 3, ncclInt64, 1 - me->rank, me->comm, me->stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclReduce(memory, memory, 11, ncclFloat32, ncclSum, 1, me->comm, me->stream));
    NCCL(ncclAlltoAll(memory, memory + 0x1000, 2, ncclInt32, me->comm, me->stream));
    NCCL(ncclScatter(memory, memory + 0x2000, 2, ncclInt32, 1, me->comm, me->stream));
    NCCL(ncclGather(memory, memory + 0x3000, 2, ncclInt32, 1, me->comm, me->stream));
    RETURNS(ncclRemoteError,
            ncclAllReduce(memory, memory, 13, ncclFloat32, ncclSum, me->comm, me->stream));
    CHECK(strstr(ncclGetLastError(NULL), "a real error"));
    check_healthy(me->comm);
    NCCL(ncclCommSplit(me->comm, 4, 9, &part, NULL));
    NCCL(ncclCommSplit(me->comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    CHECK(part && !none);
    int world = 0;
    NCCL(ncclCommCount(part, &world));
    CHECK(world == 1);
    NCCL(ncclCommAbort(part));
    NCCL(ncclCommDeregister(me->comm, token));
    NCCL(ncclCommFinalize(me->comm));
    NCCL(ncclCommDestroy(me->comm));
    RETURNS(ncclInvalidArgument, ncclCommDestroy(me->comm));
}

/* Nobody names another library, or one that is not there. */
static void refused(struct rank *me) {
    ncclUniqueId id = share_id(me, 0);
    RETURNS(ncclUnhandledCudaError, ncclCommInitRank(&me->comm, me->world, id, me->rank));
    fprintf(stderr, "%s\n", ncclGetLastError(NULL));
    ncclResult_t error = ncclSuccess;
    NCCL(ncclCommGetAsyncError(me->comm, &error));
    CHECK(error == ncclUnhandledCudaError);
    NCCL(ncclCommAbort(me->comm));
}

static const struct test TESTS[] = {
    {"forwarded", forwarded}, {"refused", refused}, {NULL, NULL}};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
