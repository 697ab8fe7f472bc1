/* What programs for NCCL are compiled with: sizes, places of fields, and values. Compiled, and not
 * run; against our header, and where it is installed against NVIDIA's. */
#include <nccl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define SAME(what, number) _Static_assert((what) == (number), #what)

SAME(sizeof(ncclUniqueId), 128);
SAME(_Alignof(ncclUniqueId), 1);
SAME(sizeof(ncclComm_t), 8);
SAME(sizeof(ncclResult_t), 4);
SAME(sizeof(ncclDataType_t), 4);
SAME(sizeof(ncclRedOp_t), 4);
SAME(sizeof(ncclScalarResidence_t), 4);

SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);

SAME(ncclInt8, 0);
SAME(ncclUint8, 1);
SAME(ncclInt32, 2);
SAME(ncclUint32, 3);
SAME(ncclInt64, 4);
SAME(ncclUint64, 5);
SAME(ncclFloat16, 6);
SAME(ncclFloat32, 7);
SAME(ncclFloat64, 8);
SAME(ncclBfloat16, 9);
SAME(ncclFloat8e4m3, 10);
SAME(ncclFloat8e5m2, 11);

SAME(ncclSum, 0);
SAME(ncclProd, 1);
SAME(ncclMax, 2);
SAME(ncclMin, 3);
SAME(ncclAvg, 4);
SAME(ncclNumOps, 5);
SAME(ncclMaxRedOp, INT_MAX);
SAME(ncclScalarDevice, 0);
SAME(ncclScalarHostImmediate, 1);
SAME(NCCL_SPLIT_NOCOLOR, -1);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);

/* Fields that the library reads. Each version adds its own behind them. */
SAME(offsetof(ncclConfig_t, size), 0);
SAME(offsetof(ncclConfig_t, magic), 8);
SAME(offsetof(ncclConfig_t, version), 12);
SAME(offsetof(ncclConfig_t, blocking), 16);
SAME(offsetof(ncclConfig_t, cgaClusterSize), 20);
SAME(offsetof(ncclConfig_t, minCTAs), 24);
SAME(offsetof(ncclConfig_t, maxCTAs), 28);
SAME(offsetof(ncclConfig_t, netName), 32);
SAME(offsetof(ncclConfig_t, splitShare), 40);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
SAME(offsetof(ncclConfig_t, trafficClass), 44);
SAME(offsetof(ncclConfig_t, commName), 48);
SAME(offsetof(ncclConfig_t, collnetEnable), 56);
SAME(offsetof(ncclConfig_t, CTAPolicy), 60);
SAME(offsetof(ncclConfig_t, shrinkShare), 64);
SAME(offsetof(ncclConfig_t, nvlsCTAs), 68);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME(offsetof(ncclConfig_t, nChannelsPerNetPeer), 72);
SAME(offsetof(ncclConfig_t, nvlinkCentricSched), 76);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME(sizeof(ncclConfig_t), 80);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
SAME(sizeof(ncclSimInfo_t), 24);
SAME(offsetof(ncclSimInfo_t, estimatedTime), 16);
#endif

#ifndef NVIDIA_HEADER
SAME(sizeof(ncclWaitSignalDesc_t), 16);
SAME(sizeof(ncclEncryptionConfig_t), 32);
SAME(offsetof(ncclEncryptionConfig_t, mode), 16);
SAME(offsetof(ncclEncryptionConfig_t, psk), 24);
#endif

/* Functions have these types: a pointer of the type takes each. */
ncclResult_t (*const all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t) = ncclAllReduce;
ncclResult_t (*const reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
                             ncclComm_t, cudaStream_t) = ncclReduce;
ncclResult_t (*const broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                                cudaStream_t) = ncclBroadcast;
ncclResult_t (*const all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                                 cudaStream_t) = ncclAllGather;
ncclResult_t (*const reduce_scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                     ncclComm_t, cudaStream_t) = ncclReduceScatter;
ncclResult_t (*const send)(const void *, size_t, ncclDataType_t, int, ncclComm_t,
                           cudaStream_t) = ncclSend;
ncclResult_t (*const receive)(void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t) = ncclRecv;
ncclResult_t (*const init)(ncclComm_t *, int, ncclUniqueId, int,
                           ncclConfig_t *) = ncclCommInitRankConfig;
ncclResult_t (*const split)(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *) = ncclCommSplit;
ncclResult_t (*const pre_mul)(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t,
                              ncclComm_t) = ncclRedOpCreatePreMulSum;

const ncclConfig_t initialized = NCCL_CONFIG_INITIALIZER;
