/* The functions of Maypole's libnccl.so.2, under NCCL's names.
 *
 * Programs that have NVIDIA's nccl.h can use that one: names, values and layouts are the same. This
 * header needs no CUDA headers. Each function `ncclX` also exists as `pncclX`, for profilers that
 * define their own `ncclX`. README.md lists the unsupported functions.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the layouts in this header. ncclGetVersion() returns that of the library. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X, Y, Z) \
    (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

/* As CUDA's own headers define it. */
typedef struct CUstream_st *cudaStream_t;

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

/* Values from ncclNumOps on are made by ncclRedOpCreatePreMulSum(). */
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* The memory of the factor of ncclRedOpCreatePreMulSum(). A factor on the host is read when the
 * operation is made, one on the device when the kernel of the collective runs. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00

typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER { \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }
/* clang-format on */

typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
    { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_ENCRYPTION_MODE_NONE 0
#define NCCL_ENCRYPTION_MODE_PSK 1

typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int mode;
    const char *psk;
} ncclEncryptionConfig_t;

/* Settings of one collective. The library accepts and ignores them. */
typedef struct ncclCollConfig ncclCollConfig_t;

/* Types of NCCL's device interface, which this library does not support. */
typedef struct {
    void *mcBasePtr;
} ncclMultimemHandle_t;
typedef struct ncclCommProperties ncclCommProperties_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;

/* Declares a function by both of its names. */
#define NCCL_DECLARE(type, name, arguments) \
    type nccl##name arguments;              \
    type pnccl##name arguments

/* The library. */
NCCL_DECLARE(ncclResult_t, GetVersion, (int *version));
NCCL_DECLARE(const char *, GetErrorString, (ncclResult_t result));
NCCL_DECLARE(const char *, GetLastError, (ncclComm_t comm));
NCCL_DECLARE(void, ResetDebugInit, (void));

/* Communicators. */
NCCL_DECLARE(ncclResult_t, GetUniqueId, (ncclUniqueId * id));
NCCL_DECLARE(ncclResult_t, CommInitRank,
             (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank));
NCCL_DECLARE(ncclResult_t, CommInitRankConfig,
             (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config));
NCCL_DECLARE(ncclResult_t, CommInitRankScalable,
             (ncclComm_t * comm, int nranks, int rank, int nids, ncclUniqueId *ids,
              ncclConfig_t *config));
NCCL_DECLARE(ncclResult_t, CommInitAll, (ncclComm_t * comms, int ndev, const int *devices));
NCCL_DECLARE(ncclResult_t, CommSplit,
             (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config));
NCCL_DECLARE(ncclResult_t, CommShrink,
             (ncclComm_t comm, int *excluded, int excludedCount, ncclComm_t *made,
              ncclConfig_t *config, int flags));
NCCL_DECLARE(ncclResult_t, CommFinalize, (ncclComm_t comm));
NCCL_DECLARE(ncclResult_t, CommDestroy, (ncclComm_t comm));
NCCL_DECLARE(ncclResult_t, CommAbort, (ncclComm_t comm));
NCCL_DECLARE(ncclResult_t, CommRevoke, (ncclComm_t comm, int flags));
NCCL_DECLARE(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error));
NCCL_DECLARE(ncclResult_t, CommCount, (const ncclComm_t comm, int *count));
NCCL_DECLARE(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device));
NCCL_DECLARE(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank));

/* Collectives, messages and groups. */
NCCL_DECLARE(ncclResult_t, AllReduce,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Reduce,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              int root, ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Broadcast,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Bcast,
             (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, AllGather,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, ReduceScatter,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, AlltoAll,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Gather,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Scatter,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Send,
             (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Recv,
             (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, GroupStart, (void));
NCCL_DECLARE(ncclResult_t, GroupEnd, (void));

/* The same collectives with settings. */
NCCL_DECLARE(ncclResult_t, AllReduceConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, ReduceConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, BroadcastConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, AllGatherConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
              cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, ReduceScatterConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, AlltoAllConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
              cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, GatherConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));
NCCL_DECLARE(ncclResult_t, ScatterConfig,
             (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config));

/* Operations with a factor. */
NCCL_DECLARE(ncclResult_t, RedOpCreatePreMulSum,
             (ncclRedOp_t * op, void *factor, ncclDataType_t type, ncclScalarResidence_t residence,
              ncclComm_t comm));
NCCL_DECLARE(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* Memory. */
NCCL_DECLARE(ncclResult_t, MemAlloc, (void **memory, size_t bytes));
NCCL_DECLARE(ncclResult_t, MemFree, (void *memory));
NCCL_DECLARE(ncclResult_t, CommRegister,
             (const ncclComm_t comm, void *memory, size_t bytes, void **handle));
NCCL_DECLARE(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle));
NCCL_DECLARE(ncclResult_t, CommWindowRegister,
             (ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags));
NCCL_DECLARE(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window));
NCCL_DECLARE(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **memory));

/* Unsupported functions: each returns ncclInvalidUsage, except ncclSetEncryption() with
 * NCCL_ENCRYPTION_MODE_NONE. */
NCCL_DECLARE(ncclResult_t, SetEncryption, (const ncclEncryptionConfig_t *config));
NCCL_DECLARE(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * info));
NCCL_DECLARE(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id));
NCCL_DECLARE(ncclResult_t, CommGrow,
             (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *made,
              ncclConfig_t *config));
NCCL_DECLARE(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags));
NCCL_DECLARE(ncclResult_t, CommResume, (ncclComm_t comm));
NCCL_DECLARE(ncclResult_t, CommMemStats,
             (ncclComm_t comm, ncclCommMemStat_t which, uint64_t *value));
NCCL_DECLARE(ncclResult_t, CommQueryProperties,
             (ncclComm_t comm, ncclCommProperties_t *properties));
NCCL_DECLARE(ncclResult_t, DevCommCreate,
             (ncclComm_t comm, const ncclDevCommRequirements_t *requirements, ncclDevComm_t *made));
NCCL_DECLARE(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const ncclDevComm_t *made));
NCCL_DECLARE(ncclResult_t, GetLsaMultimemDevicePointer,
             (ncclWindow_t window, size_t offset, void **pointer));
NCCL_DECLARE(ncclResult_t, GetMultimemDevicePointer,
             (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **pointer));
NCCL_DECLARE(ncclResult_t, GetLsaDevicePointer,
             (ncclWindow_t window, size_t offset, int rank, void **pointer));
NCCL_DECLARE(ncclResult_t, GetPeerDevicePointer,
             (ncclWindow_t window, size_t offset, int peer, void **pointer));
NCCL_DECLARE(ncclResult_t, PutSignal,
             (const void *memory, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
              size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, Signal,
             (int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
              cudaStream_t stream));
NCCL_DECLARE(ncclResult_t, WaitSignal,
             (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream));

/* Teams of near ranks in NCCL's device interface: all ranks of a communicator, because they share a host. */
typedef struct {
    int nRanks, rank, stride;
} ncclTeam_t;
NCCL_DECLARE(ncclTeam_t, TeamWorld, (ncclComm_t comm));
NCCL_DECLARE(ncclTeam_t, TeamLsa, (ncclComm_t comm));
NCCL_DECLARE(ncclTeam_t, TeamRail, (ncclComm_t comm));
NCCL_DECLARE(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank));
NCCL_DECLARE(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank));

/* Memory for kernels: each returns ncclInvalidUsage, and the number of slots is 0. */
NCCL_DECLARE(ncclResult_t, LsaBarrierCreateRequirement,
             (ncclTeam_t team, int barriers, void *handle, void *requirements));
NCCL_DECLARE(ncclResult_t, GinBarrierCreateRequirement,
             (ncclComm_t comm, ncclTeam_t team, int barriers, void *handle, void *requirements));
NCCL_DECLARE(int, LLA2ACalcSlots, (int elements, int size));
NCCL_DECLARE(ncclResult_t, LLA2ACreateRequirement,
             (int blocks, int slots, void *handle, void *requirements));
NCCL_DECLARE(ncclResult_t, GinOutboxCreateRequirement,
             (int blocks, int size_log2, void *handle, void *requirements));
NCCL_DECLARE(ncclResult_t, GinInboxA2ACreateRequirement,
             (ncclTeam_t team, int blocks, int size_log2, void *handle, void *requirements));

/* Parameters: none is published, so each look-up returns ncclInvalidArgument. */
NCCL_DECLARE(ncclResult_t, ParamBind, (ncclParamHandle_t * handle, const char *key));
NCCL_DECLARE(ncclResult_t, ParamGetI8, (ncclParamHandle_t handle, int8_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetI16, (ncclParamHandle_t handle, int16_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetI32, (ncclParamHandle_t handle, int32_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetI64, (ncclParamHandle_t handle, int64_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetU8, (ncclParamHandle_t handle, uint8_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetU16, (ncclParamHandle_t handle, uint16_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetU32, (ncclParamHandle_t handle, uint32_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetU64, (ncclParamHandle_t handle, uint64_t *value));
NCCL_DECLARE(ncclResult_t, ParamGetStr, (ncclParamHandle_t handle, const char **value));
NCCL_DECLARE(ncclResult_t, ParamGet,
             (ncclParamHandle_t handle, void *value, int room, int *length));
NCCL_DECLARE(ncclResult_t, ParamGetParameter, (const char *key, const char **value, int *length));
NCCL_DECLARE(ncclResult_t, ParamGetAllParameterKeys, (const char ***keys, int *count));
NCCL_DECLARE(void, ParamDumpAll, (void));

#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif

#endif
