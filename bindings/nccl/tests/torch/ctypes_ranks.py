"""Calls the functions of the library that PyTorch does not reach, or only in part.

It needs the driver and NumPy, and nothing else: it also runs over a library that stands in for the
driver. Names of checks given as arguments limit what runs.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import ranks

ranks.start(limit=60)

import numpy as np

PEER = 1 - ranks.RANK
NO_COLOR = -1
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE, IN_PROGRESS = 0, 4, 5, 6, 7
KINDS = {
    np.dtype(np.uint8): 1,
    np.dtype(np.int64): 4,
    np.dtype(np.float16): 6,
    np.dtype(np.float32): 7,
}
SUM, AVG = 0, 4
SCALAR_ON_DEVICE, SCALAR_ON_HOST = 0, 1
cuda = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL(os.environ.get("NCCL_LIBRARY", "libnccl.so.2"))


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """Of version 2.14, whose only field is `blocking`."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


Comm, Pointer, Size, Int = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES = {
    "ncclGetVersion": [Pointer],
    "ncclGetUniqueId": [Pointer],
    "ncclCommInitRank": [Pointer, Int, UniqueId, Int],
    "ncclCommInitRankConfig": [Pointer, Int, UniqueId, Int, Pointer],
    "ncclCommSplit": [Comm, Int, Int, Pointer, Pointer],
    "ncclCommFinalize": [Comm],
    "ncclCommDestroy": [Comm],
    "ncclCommAbort": [Comm],
    "ncclCommGetAsyncError": [Comm, Pointer],
    "ncclCommCount": [Comm, Pointer],
    "ncclCommCuDevice": [Comm, Pointer],
    "ncclCommUserRank": [Comm, Pointer],
    "ncclCommRegister": [Comm, Pointer, Size, Pointer],
    "ncclCommDeregister": [Comm, Pointer],
    "ncclMemAlloc": [Pointer, Size],
    "ncclMemFree": [Pointer],
    "ncclRedOpCreatePreMulSum": [Pointer, Pointer, Int, Int, Comm],
    "ncclRedOpDestroy": [Int, Comm],
    "ncclAllReduce": [Pointer, Pointer, Size, Int, Int, Comm, Pointer],
    "ncclReduce": [Pointer, Pointer, Size, Int, Int, Int, Comm, Pointer],
    "ncclReduceScatter": [Pointer, Pointer, Size, Int, Int, Comm, Pointer],
    "ncclBroadcast": [Pointer, Pointer, Size, Int, Int, Comm, Pointer],
    "ncclBcast": [Pointer, Size, Int, Int, Comm, Pointer],
    "ncclAllGather": [Pointer, Pointer, Size, Int, Comm, Pointer],
    "ncclAlltoAll": [Pointer, Pointer, Size, Int, Comm, Pointer],
    "ncclGather": [Pointer, Pointer, Size, Int, Int, Comm, Pointer],
    "ncclScatter": [Pointer, Pointer, Size, Int, Int, Comm, Pointer],
    "ncclSend": [Pointer, Size, Int, Int, Comm, Pointer],
    "ncclRecv": [Pointer, Size, Int, Int, Comm, Pointer],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
}
for function, arguments in SIGNATURES.items():
    getattr(nccl, function).argtypes = arguments
for function in ("ncclGetErrorString", "ncclGetLastError"):
    getattr(nccl, function).restype = ctypes.c_char_p
nccl.ncclGetLastError.argtypes = [Comm]


# --- The driver ---


def driver(function, *arguments):
    code = getattr(cuda, function)(*arguments)
    if code:
        raise RuntimeError(f"{function} returns {code}")


def set_up():
    context, device = ctypes.c_void_p(), ctypes.c_int()
    driver("cuInit", 0)
    driver("cuDeviceGet", ctypes.byref(device), 0)
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver("cuCtxSetCurrent", context)
    return context


def new_stream():
    stream = ctypes.c_void_p()
    # Does not wait for the default stream.
    driver("cuStreamCreate", ctypes.byref(stream), 1)
    return stream


class Buffer:
    """An array in the memory of the GPU. It is never freed: the program is short."""

    def __init__(self, values):
        values = np.ascontiguousarray(values)
        self.kind, self.count, self.bytes = KINDS[values.dtype], values.size, values.nbytes
        self.dtype, pointer = values.dtype, ctypes.c_uint64()
        driver("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(self.bytes, 16)))
        self.address = pointer.value
        self.put(values)

    def put(self, values):
        values = np.ascontiguousarray(values)
        driver(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(self.address),
            values.ctypes.data_as(Pointer),
            ctypes.c_size_t(self.bytes),
        )

    def get(self, stream):
        driver("cuStreamSynchronize", stream)
        values = np.empty(self.count, self.dtype)
        driver(
            "cuMemcpyDtoH_v2",
            values.ctypes.data_as(Pointer),
            ctypes.c_uint64(self.address),
            ctypes.c_size_t(self.bytes),
        )
        return values

    def at(self, element):
        return self.address + element * self.dtype.itemsize


def filled(count, value):
    return Buffer(np.full(count, value, np.float32))


def numbers(count, rank=ranks.RANK):
    """Sums of these are exact."""
    return (np.arange(count) % 1000 + 1000.0 * rank).astype(np.float32)


# --- The library ---


def called(what, code, wanted=SUCCESS):
    if code != wanted:
        last = nccl.ncclGetLastError(None).decode(errors="replace")
        ranks.fail(f"{what} returns {code}, not {wanted}: {last}")
    return code


def same(name, got, want):
    if not np.array_equal(got, want):
        at = int(np.nonzero(got != want)[0][0])
        ranks.fail(f"{name}: element {at} of {len(got)} is {got[at]}, not {want[at]}")


def unique_id(name):
    """An id that rank 0 makes."""
    id = UniqueId()
    if ranks.RANK == 0:
        called("ncclGetUniqueId", nccl.ncclGetUniqueId(ctypes.byref(id)))
        ranks.say(f"id-{name}", bytes(id))
        return id
    return UniqueId.from_buffer_copy(ranks.hear(f"id-{name}"))


def new_comm(name):
    comm = Comm()
    called(
        "ncclCommInitRank",
        nccl.ncclCommInitRank(ctypes.byref(comm), 2, unique_id(name), ranks.RANK),
    )
    return comm


def asked(function, comm):
    value = ctypes.c_int(-5)
    called(function, getattr(nccl, function)(comm, ctypes.byref(value)))
    return value.value


def wait_for_error(comm, limit=20):
    """The asynchronous error of `comm` once there is one that is not "in progress"."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        code = asked("ncclCommGetAsyncError", comm)
        if code not in (SUCCESS, IN_PROGRESS):
            return code
        time.sleep(0.01)
    return SUCCESS


def meet():
    """An all-reduce whose result is waited for."""
    buffer = filled(1, 1)
    called(
        "ncclAllReduce",
        nccl.ncclAllReduce(buffer.address, buffer.address, 1, 7, SUM, world, stream),
    )
    same("an all-reduce to meet", buffer.get(stream), np.array([2], np.float32))


# --- The checks ---


def queries():
    version = ctypes.c_int()
    called("ncclGetVersion", nccl.ncclGetVersion(ctypes.byref(version)))
    print("version", version.value, flush=True)
    ranks.true("the version is one of NCCL 2", 20000 < version.value < 30000)
    ranks.true("text of success", nccl.ncclGetErrorString(0) == b"no error")
    ranks.true(
        "text of a lost peer",
        nccl.ncclGetErrorString(6) == b"remote process exited or there was a network error",
    )
    ranks.true("the last error is a string", nccl.ncclGetLastError(None) is not None)
    ranks.true("count", asked("ncclCommCount", world) == 2)
    ranks.true("rank", asked("ncclCommUserRank", world) == ranks.RANK)
    ranks.true("device", asked("ncclCommCuDevice", world) == 0)
    ranks.true("no error", asked("ncclCommGetAsyncError", world) == SUCCESS)


def collectives():
    count = 5003
    mine, both = Buffer(numbers(count)), numbers(count, 0) + numbers(count, 1)
    out, whole = filled(count, -1), filled(2 * count, -1)
    called("AllReduce", nccl.ncclAllReduce(mine.address, out.address, count, 7, SUM, world, stream))
    same("all-reduce", out.get(stream), both)
    for root in range(2):
        target = out.address if ranks.RANK == root else None
        out.put(np.full(count, -1, np.float32))
        called("Reduce", nccl.ncclReduce(mine.address, target, count, 7, SUM, root, world, stream))
        same(
            f"reduce to {root}",
            out.get(stream),
            both if ranks.RANK == root else np.full(count, -1, np.float32),
        )
        source = mine.address if ranks.RANK == root else None
        called("Broadcast", nccl.ncclBroadcast(source, out.address, count, 7, root, world, stream))
        same(f"broadcast from {root}", out.get(stream), numbers(count, root))
        called(
            "Gather", nccl.ncclGather(mine.address, whole.address, count, 7, root, world, stream)
        )
        if ranks.RANK == root:
            same(
                f"gather to {root}",
                whole.get(stream),
                np.concatenate([numbers(count, rank) for rank in range(2)]),
            )
        parts = Buffer(numbers(2 * count))
        called(
            "Scatter", nccl.ncclScatter(parts.address, out.address, count, 7, root, world, stream)
        )
        same(
            f"scatter from {root}",
            out.get(stream),
            numbers(2 * count, root)[ranks.RANK * count :][:count],
        )
    called("Bcast", nccl.ncclBcast(out.address, count, 7, 1, world, stream))
    called("AllGather", nccl.ncclAllGather(mine.address, whole.address, count, 7, world, stream))
    same(
        "all-gather", whole.get(stream), np.concatenate([numbers(count, rank) for rank in range(2)])
    )
    parts = Buffer(numbers(2 * count))
    called(
        "ReduceScatter",
        nccl.ncclReduceScatter(parts.address, out.address, count, 7, AVG, world, stream),
    )
    half = (numbers(2 * count, 0) + numbers(2 * count, 1)) / 2
    same("reduce-scatter", out.get(stream), half[ranks.RANK * count :][:count])
    called("AlltoAll", nccl.ncclAlltoAll(parts.address, whole.address, count, 7, world, stream))
    exchanged = np.concatenate(
        [numbers(2 * count, rank)[ranks.RANK * count :][:count] for rank in range(2)]
    )
    same("all-to-all", whole.get(stream), exchanged)


def in_place():
    count = 777
    both = np.concatenate([numbers(count, rank) for rank in range(2)])
    whole = Buffer(
        np.where(np.arange(2 * count) // count == ranks.RANK, both, -1).astype(np.float32)
    )
    here = whole.at(ranks.RANK * count)
    called("AllGather", nccl.ncclAllGather(here, whole.address, count, 7, world, stream))
    same("all-gather in place", whole.get(stream), both)
    whole.put(numbers(2 * count))
    called(
        "ReduceScatter", nccl.ncclReduceScatter(whole.address, here, count, 7, SUM, world, stream)
    )
    part = whole.get(stream)[ranks.RANK * count :][:count]
    same(
        "reduce-scatter in place",
        part,
        (numbers(2 * count, 0) + numbers(2 * count, 1))[ranks.RANK * count :][:count],
    )
    for root in range(2):
        mine = Buffer(numbers(count))
        whole.put(np.where(np.arange(2 * count) // count == root, both, -1).astype(np.float32))
        is_root = ranks.RANK == root
        source, target = (
            (whole.at(root * count), whole.address) if is_root else (mine.address, None)
        )
        called("Gather", nccl.ncclGather(source, target, count, 7, root, world, stream))
        if is_root:
            same(f"gather in place to {root}", whole.get(stream), both)
        source, target = (
            (whole.address, whole.at(root * count)) if is_root else (None, mine.address)
        )
        called("Scatter", nccl.ncclScatter(source, target, count, 7, root, world, stream))
        if not is_root:
            same(f"scatter in place from {root}", mine.get(stream), numbers(count))
    called("AllReduce", nccl.ncclAllReduce(whole.address, whole.address, 0, 7, SUM, world, stream))


def factors():
    count = 1001
    data, op = Buffer(numbers(count)), ctypes.c_int()
    # Of the host: read when the operation is made. It is destroyed while the group is open.
    factor = np.array([0.5 + ranks.RANK], np.float32)
    called(
        "create",
        nccl.ncclRedOpCreatePreMulSum(
            ctypes.byref(op), factor.ctypes.data_as(Pointer), 7, SCALAR_ON_HOST, world
        ),
    )
    factor[0] = 99
    called("start", nccl.ncclGroupStart())
    called("AllReduce", nccl.ncclAllReduce(data.address, data.address, count, 7, op, world, stream))
    called("destroy", nccl.ncclRedOpDestroy(op, world))
    called("end", nccl.ncclGroupEnd())
    want = 0.5 * numbers(count, 0) + 1.5 * numbers(count, 1)
    same("factors of the host, one for each rank", data.get(stream), want)
    # Of the GPU: read when the kernel runs.
    factor, data = filled(1, 99), Buffer(numbers(count))
    called(
        "create",
        nccl.ncclRedOpCreatePreMulSum(ctypes.byref(op), factor.address, 7, SCALAR_ON_DEVICE, world),
    )
    factor.put(np.array([2.0 - ranks.RANK], np.float32))
    called("AllReduce", nccl.ncclAllReduce(data.address, data.address, count, 7, op, world, stream))
    called("destroy", nccl.ncclRedOpDestroy(op, world))
    same("factors of the GPU", data.get(stream), 2 * numbers(count, 0) + numbers(count, 1))


def groups():
    count = 3001
    sent, received = Buffer(numbers(count)), filled(count, -1)
    own, copied = Buffer(numbers(50)), filled(50, -1)
    total = Buffer(numbers(10))
    called("start", nccl.ncclGroupStart())
    called("start", nccl.ncclGroupStart())
    called("Recv", nccl.ncclRecv(received.address, count, 7, PEER, world, stream))
    called("Send", nccl.ncclSend(own.address, 50, 7, ranks.RANK, world, stream))
    called("end", nccl.ncclGroupEnd())
    called("AllReduce", nccl.ncclAllReduce(total.address, total.address, 10, 7, SUM, world, stream))
    called("Recv", nccl.ncclRecv(copied.address, 50, 7, ranks.RANK, world, stream))
    called("Send", nccl.ncclSend(sent.address, count, 7, PEER, world, stream))
    called("end", nccl.ncclGroupEnd())
    same("message of the peer", received.get(stream), numbers(count, PEER))
    same("message to oneself", copied.get(stream), numbers(50))
    same("sum in the group", total.get(stream), numbers(10, 0) + numbers(10, 1))
    # Messages to one peer match in their order, and some have no bytes.
    sent, received = [filled(4 + at, 10 * ranks.RANK + at) for at in range(5)], [
        filled(4 + at, -1) for at in range(5)
    ]
    called("start", nccl.ncclGroupStart())
    for buffer in sent:
        called("Send", nccl.ncclSend(buffer.address, buffer.count, 7, PEER, world, stream))
    called("Send", nccl.ncclSend(None, 0, 7, PEER, world, stream))
    for buffer in received:
        called("Recv", nccl.ncclRecv(buffer.address, buffer.count, 7, PEER, world, stream))
    called("Recv", nccl.ncclRecv(None, 0, 7, PEER, world, stream))
    called("end", nccl.ncclGroupEnd())
    for at, buffer in enumerate(received):
        same(f"message {at}", buffer.get(stream), np.full(4 + at, 10 * PEER + at, np.float32))


def streams():
    """Calls of one communicator on two streams run in the order of the program."""
    sides = [new_stream(), new_stream()]
    for step in range(ranks.often(50, taking_turns=10)):
        data = filled(2000 + step, 1)
        for at in range(4):
            side = sides[at % 2]
            called(
                "AllReduce",
                nccl.ncclAllReduce(data.address, data.address, data.count, 7, SUM, world, side),
            )
        for side in sides:
            driver("cuStreamSynchronize", side)
        same(
            f"four sums in turn, step {step}",
            data.get(sides[1]),
            np.full(2000 + step, 16, np.float32),
        )


def split():
    child, turned = Comm(), Comm()
    # The keys turn the order of the ranks round.
    called("split", nccl.ncclCommSplit(world, 3, 10 - ranks.RANK, ctypes.byref(turned), None))
    ranks.true("the rank in the turned communicator", asked("ncclCommUserRank", turned) == PEER)
    data = filled(10, ranks.RANK)
    called("Broadcast", nccl.ncclBroadcast(data.address, data.address, 10, 7, 0, turned, stream))
    same(
        "broadcast from the root of the turned communicator",
        data.get(stream),
        np.full(10, 1, np.float32),
    )
    color = 0 if ranks.RANK == 0 else NO_COLOR
    called("split", nccl.ncclCommSplit(world, color, 0, ctypes.byref(child), None))
    ranks.true("only rank 0 has the child", bool(child) == (ranks.RANK == 0))
    if child:
        data = filled(10, 5)
        called(
            "AllReduce", nccl.ncclAllReduce(data.address, data.address, 10, 7, SUM, child, stream)
        )
        same("sum of one rank", data.get(stream), np.full(10, 5, np.float32))
        called("destroy", nccl.ncclCommDestroy(child))
    meet()
    called("destroy", nccl.ncclCommDestroy(turned))
    meet()


def memory():
    handle, pointer = Pointer(), Pointer()
    buffer = filled(1000, 1)
    called(
        "register", nccl.ncclCommRegister(world, buffer.address, buffer.bytes, ctypes.byref(handle))
    )
    called("deregister", nccl.ncclCommDeregister(world, handle))
    called("deregister nothing", nccl.ncclCommDeregister(world, None))
    called("alloc", nccl.ncclMemAlloc(ctypes.byref(pointer), 1 << 20))
    driver(
        "cuMemsetD8_v2", ctypes.c_uint64(pointer.value), ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)
    )
    called("AllReduce", nccl.ncclAllReduce(pointer, pointer, 1 << 20, 1, SUM, world, stream))
    driver("cuStreamSynchronize", stream)
    called("free", nccl.ncclMemFree(pointer))


def without_waiting():
    """A communicator that does not block: init returns before the peer has come."""
    config, comm = Config(24, 0xCAFEBEEF, 21400, 0), Comm()
    id = unique_id("without-waiting")
    code = nccl.ncclCommInitRankConfig(ctypes.byref(comm), 2, id, ranks.RANK, ctypes.byref(config))
    ranks.true(f"init returns {code}", code in (SUCCESS, IN_PROGRESS) and bool(comm))
    end = time.monotonic() + 20
    while asked("ncclCommGetAsyncError", comm) == IN_PROGRESS and time.monotonic() < end:
        time.sleep(0.005)
    data = filled(100, 1)
    called("AllReduce", nccl.ncclAllReduce(data.address, data.address, 100, 7, SUM, comm, stream))
    same("sum", data.get(stream), np.full(100, 2, np.float32))
    nccl.ncclCommFinalize(comm)
    while asked("ncclCommGetAsyncError", comm) == IN_PROGRESS and time.monotonic() < end:
        time.sleep(0.005)
    called("destroy", nccl.ncclCommDestroy(comm))


def wrong_arguments():
    data = filled(10, 1)
    address = data.address
    called(
        "a root that is not there",
        nccl.ncclBcast(address, 10, 7, 2, world, stream),
        INVALID_ARGUMENT,
    )
    ranks.true("the last error says something", len(nccl.ncclGetLastError(world)) > 5)
    called(
        "a peer that is not there",
        nccl.ncclSend(address, 10, 7, -1, world, stream),
        INVALID_ARGUMENT,
    )
    called(
        "a type that is not there",
        nccl.ncclAllReduce(address, address, 10, 77, SUM, world, stream),
        INVALID_ARGUMENT,
    )
    called(
        "no communicator",
        nccl.ncclAllReduce(address, address, 10, 7, SUM, None, stream),
        INVALID_ARGUMENT,
    )
    called("an end without a start", nccl.ncclGroupEnd(), INVALID_USAGE)
    # A message to oneself alone has nobody who takes it.
    called(
        "a message to oneself alone",
        nccl.ncclSend(address, 10, 7, ranks.RANK, world, stream),
        INVALID_USAGE,
    )
    called("destroying nothing", nccl.ncclCommDestroy(None))
    called("aborting nothing", nccl.ncclCommAbort(None))
    ranks.true("no error stays", asked("ncclCommGetAsyncError", world) == SUCCESS)
    meet()


def abort():
    """Rank 0 gives up a call that rank 1 never makes, from another thread."""
    comm = new_comm("abort")
    if ranks.RANK == 0:
        data, side = filled(1000, 1), new_stream()
        called(
            "AllReduce", nccl.ncclAllReduce(data.address, data.address, 1000, 7, SUM, comm, side)
        )
        ranks.true("no error yet", asked("ncclCommGetAsyncError", comm) in (SUCCESS, IN_PROGRESS))
        handle, begun = Pointer(), time.monotonic()
        code = nccl.ncclCommRegister(comm, data.address, data.bytes, ctypes.byref(handle))
        called("register", code)
        called("deregister", nccl.ncclCommDeregister(comm, handle))
        asked_after = time.monotonic() - begun
        thread = threading.Thread(target=lambda: called("abort", nccl.ncclCommAbort(comm)))
        thread.start()
        thread.join(15)
        aborted_after = time.monotonic() - begun
        driver("cuStreamSynchronize", side)
        took = time.monotonic() - begun
        times = (
            f"registered at {asked_after:.2f} s, aborted at {aborted_after:.2f}, done at {took:.2f}"
        )
        print(times, flush=True)
        ranks.true(f"the abort is quick: {times}", took < 3)
        ranks.say("aborted")
    else:
        ranks.hear("aborted")
        called("abort", nccl.ncclCommAbort(comm))
    meet()


def mismatch():
    """Calls that differ: both ranks are told, and which call differs."""
    comm, side = new_comm("mismatch"), new_stream()
    data = filled(2000, 1)
    called(
        "AllReduce",
        nccl.ncclAllReduce(data.address, data.address, 1000 * (1 + ranks.RANK), 7, SUM, comm, side),
    )
    # PyTorch takes a call whose kernel has ended for a good one, unless the error is there by then.
    driver("cuStreamSynchronize", side)
    code = asked("ncclCommGetAsyncError", comm)
    ranks.true("the error is there when the stream is done", code not in (SUCCESS, IN_PROGRESS))
    first, code = code, wait_for_error(comm)
    ranks.true(f"an error stays: {first}, then {code}", first == code)
    text = nccl.ncclGetLastError(comm).decode(errors="replace")
    print(f"a mismatch is error {code}: {text}", flush=True)
    ranks.true(f"a mismatch is error {code}: {text}", code in (INVALID_USAGE, REMOTE))
    ranks.true(f"the last error has the counts: {text}", "1000" in text or "2000" in text)
    called("abort", nccl.ncclCommAbort(comm))
    meet()


def summed(comm, side):
    """An all-reduce of ones on `side`, not waited for."""
    data = filled(1000, 1)
    code = nccl.ncclAllReduce(data.address, data.address, 1000, 7, SUM, comm, side)
    return data, called("AllReduce", code)


def death():
    """The peer is killed while rank 0 waits for it. It is a process of rank 1's, which goes on."""
    if ranks.RANK == 1:
        peer = subprocess.run([sys.executable, sys.argv[0], "dies"], timeout=40)
        ranks.true(f"the peer ends with {peer.returncode}", peer.returncode == -signal.SIGKILL)
    else:
        comm, side = new_comm("death"), new_stream()
        first, _ = summed(comm, side)
        same("the sum with the peer", first.get(side), np.full(1000, 2, np.float32))
        summed(comm, side)
        ranks.say("called")
        driver("cuStreamSynchronize", side)
        code = asked("ncclCommGetAsyncError", comm)
        text = nccl.ncclGetLastError(comm).decode(errors="replace")
        print(f"a death is error {code}: {text}", flush=True)
        ranks.true(f"a death is error {code}", code == REMOTE)
        ranks.true(f"the last error names rank 1: {text}", "rank 1" in text)
        called("abort", nccl.ncclCommAbort(comm))
    meet()


def die():
    """What the process does that is killed in `death`."""
    comm, side = new_comm("death"), new_stream()
    summed(comm, side)
    driver("cuStreamSynchronize", side)
    ranks.hear("called")
    os.kill(os.getpid(), signal.SIGKILL)


def several():
    """Communicators that are open at once, in one group of calls."""
    comms = [new_comm(f"several-{at}") for at in range(3)]
    datas, side = [filled(500 + at, at + 1) for at in range(3)], new_stream()
    called("start", nccl.ncclGroupStart())
    for comm, data in zip(comms, datas):
        called(
            "AllReduce",
            nccl.ncclAllReduce(data.address, data.address, data.count, 7, SUM, comm, side),
        )
    called("end", nccl.ncclGroupEnd())
    for at, data in enumerate(datas):
        same(
            f"sum of communicator {at}", data.get(side), np.full(500 + at, 2 * (at + 1), np.float32)
        )
    for comm in comms:
        called("finalize", nccl.ncclCommFinalize(comm))
        called("destroy", nccl.ncclCommDestroy(comm))


context = set_up()
if sys.argv[1:] == ["dies"]:
    die()
stream, world = new_stream(), new_comm("world")
checks = [
    queries,
    collectives,
    in_place,
    factors,
    groups,
    streams,
    split,
    memory,
    without_waiting,
    wrong_arguments,
    several,
    abort,
    mismatch,
    death,
]
for check in checks:
    if len(sys.argv) > 1 and check.__name__ not in sys.argv[1:]:
        continue
    with ranks.case(check.__name__):
        check()
    print(check.__name__, "done", flush=True)
ranks.stop_if_wrong()
called("finalize", nccl.ncclCommFinalize(world))
called("destroy", nccl.ncclCommDestroy(world))
ranks.finish()
