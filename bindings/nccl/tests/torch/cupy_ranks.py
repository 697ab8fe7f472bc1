"""CuPy's communicator, on CuPy's default stream and on another one.

The id goes from rank to rank by a file. Ends with 77 where CuPy or its part for NCCL cannot be
loaded.
"""

import json
import sys

import ranks

if not ranks.is_rank():
    ended = ranks.run(limit=40)
    codes = [end.code for end in ended]
    print("exit codes:", codes, flush=True)
    sys.exit(77 if codes == [77, 77] else int(any(codes)))
ranks.prepare()

try:
    import cupy
    from cupy.cuda import nccl

    if not nccl.available:
        raise ImportError("cupy.cuda.nccl is not available")
except ImportError as error:
    print("SKIPPED:", error, flush=True)
    sys.exit(77)

print(
    "CuPy", cupy.__version__, "NCCL it finds:", nccl.get_version(), *ranks.libraries(), flush=True
)
if ranks.RANK == 0:
    id = nccl.get_unique_id()
    # Older versions have a tuple of numbers with a sign.
    ranks.say("id", json.dumps([type(id).__name__, [number % 256 for number in id]]).encode())
else:
    name, numbers = json.loads(ranks.hear("id"))
    signed = tuple((number + 128) % 256 - 128 for number in numbers)
    id = bytes(numbers) if name == "bytes" else signed
comm = nccl.NcclCommunicator(2, id, ranks.RANK)
ranks.true("rank", comm.rank_id() == ranks.RANK and comm.size() == 2 and comm.device_id() == 0)

for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
    with stream:
        data, out = cupy.full(1003, 1.0 + ranks.RANK, cupy.float32), cupy.zeros(1003, cupy.float32)
        comm.allReduce(
            data.data.ptr, out.data.ptr, 1003, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
        )
        ranks.true("sum", bool((out == 3).all()))
        gathered = cupy.zeros(2006, cupy.float32)
        comm.allGather(data.data.ptr, gathered.data.ptr, 1003, nccl.NCCL_FLOAT32, stream.ptr)
        ranks.true("gather", bool((gathered == cupy.repeat(cupy.array([1.0, 2.0]), 1003)).all()))
        comm.broadcast(data.data.ptr, out.data.ptr, 1003, nccl.NCCL_FLOAT32, 1, stream.ptr)
        ranks.true("broadcast", bool((out == 2).all()))
        comm.bcast(data.data.ptr, 1003, nccl.NCCL_FLOAT32, 1, stream.ptr)
        ranks.true("bcast", bool((data == 2).all()))
        comm.reduceScatter(
            gathered.data.ptr, out.data.ptr, 1003, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
        )
        ranks.true("reduce-scatter", bool((out == 2.0 * (1 + ranks.RANK)).all()))
        sent, received = cupy.full(77, ranks.RANK, cupy.int64), cupy.zeros(77, cupy.int64)
        nccl.groupStart()
        comm.send(sent.data.ptr, 77, nccl.NCCL_INT64, 1 - ranks.RANK, stream.ptr)
        comm.recv(received.data.ptr, 77, nccl.NCCL_INT64, 1 - ranks.RANK, stream.ptr)
        nccl.groupEnd()
        ranks.true("messages", bool((received == 1 - ranks.RANK).all()))
        stream.synchronize()
comm.check_async_error()
comm.destroy()
ranks.finish()
