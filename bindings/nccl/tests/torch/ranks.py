"""Starts the programs of this folder as ranks, and has what they share.

`ranks.start()` is the first statement of a program, before `import torch`. In the process that was
started by hand it starts the ranks, waits for them, and ends with their outcome. In a rank it
returns.

Variables: NCCL_LIBRARY is the library that takes the place of NCCL. DEVICE=cpu runs the programs
over gloo (or the backend that BACKEND names), which checks the programs and not the library.
MPS=yes says that the ranks run side by side on the GPU; otherwise they take turns, and programs
make fewer calls. TRACE names files for the calls of each rank, with %r for its number. DEVICES is a list of GPUs, 0,1 for
example, that the ranks take in turn (0); each rank sees its own alone. HOSTS is how many hosts the ranks pretend to be
on (1): those of several meet in memory of the host.
"""

import contextlib
import ctypes
import faulthandler
import os
import pathlib
import queue
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))
ON_GPU = os.environ.get("DEVICE", "cuda") != "cpu"
BACKEND = os.environ.get("BACKEND") or ("nccl" if ON_GPU else "gloo")
# What gloo lacks: averages, factors, lists of unequal tensors, `split_group`.
IS_GLOO = BACKEND == "gloo"
DEVICES = (os.environ.get("DEVICES") or "0").split(",")
HOSTS = int(os.environ.get("HOSTS") or 1)
SIDE_BY_SIDE = not ON_GPU or os.environ.get("MPS") == "yes" or len(DEVICES) > 1


# --- The process that starts the ranks ---


class Ended:
    """How a rank ended: its code (negative: a signal), what it printed, and what it left behind."""

    def __init__(self, code, text, left_processes):
        self.code, self.text, self.left_processes = code, text, left_processes


def _port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _environment(rank, world, port, meeting, limit, preload, extra):
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MEETING": meeting}
    if HOSTS > 1:
        env["MAYPOLE_HOST"] = f"host{rank * HOSTS // world}"
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    env |= {"PYTHONUNBUFFERED": "1", "RANK_LIMIT": str(limit)}
    env["CUDA_VISIBLE_DEVICES"] = DEVICES[rank % len(DEVICES)]
    library = os.environ.get("NCCL_LIBRARY")
    if library and preload:
        env["LD_PRELOAD"] = library
    trace = os.environ.get("TRACE")
    if trace:
        env["MAYPOLE_NCCL_TRACE"] = trace.replace("%r", str(rank))
    return env | extra


# The processes of ranks that this process has started, as long as they may run.
_running = set()


def _end_ranks(*_):
    """Ends the ranks with this process: they are sessions of their own and would go on."""
    for process in list(_running):
        _signal_group(process, signal.SIGKILL)
    os._exit(143)


def _signal_group(process, number):
    """Signals the rank and its descendants; says whether there were any."""
    try:
        os.killpg(process.pid, number)
        return True
    except ProcessLookupError:
        return False


def run(arguments=(), world=2, limit=60, preload=True, env=None, others_after=15, label=""):
    """Runs the program as `world` ranks, each a session of its own, and returns how they ended.

    `limit` is in seconds. Once a rank has failed, the others have `others_after` seconds. What
    still runs then is killed, and has the code -9. What a rank prints is printed behind its number.
    """
    meeting = tempfile.mkdtemp(prefix="ranks-")
    port, outcomes, processes, texts, readers = _port(), queue.Queue(), [], [], []

    def read(rank, pipe):
        for line in pipe:
            texts[rank].append(line)
            print(f"[{label}{rank}] {line}", end="", flush=True)

    for rank in range(world):
        command = [sys.executable, sys.argv[0], *(arguments or sys.argv[1:])]
        variables = _environment(rank, world, port, meeting, limit, preload, env or {})
        pipes = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            "errors": "replace",
        }
        process = subprocess.Popen(command, env=variables, start_new_session=True, **pipes)
        processes.append(process)
        _running.add(process)
        texts.append([])
        readers.append(threading.Thread(target=read, args=(rank, process.stdout), daemon=True))
        readers[-1].start()
        wait = lambda rank=rank, process=process: outcomes.put((rank, process.wait()))
        threading.Thread(target=wait, daemon=True).start()

    codes, end = {}, time.monotonic() + limit
    while len(codes) < world:
        try:
            rank, code = outcomes.get(timeout=max(0, end - time.monotonic()))
        except queue.Empty:
            late = [rank for rank in range(world) if rank not in codes]
            print(f"[{label}-] ranks {late} were not done in time and are killed", flush=True)
            for rank in late:
                _signal_group(processes[rank], signal.SIGKILL)
            end = time.monotonic() + 10
            continue
        codes[rank] = code
        if code != 0:
            end = min(end, time.monotonic() + others_after)
    left = [_signal_group(process, signal.SIGKILL) for process in processes]
    _running.difference_update(processes)
    for reader in readers:
        reader.join(5)
    shutil.rmtree(meeting, ignore_errors=True)
    return [Ended(codes[rank], "".join(texts[rank]), left[rank]) for rank in range(world)]


def is_rank():
    """Whether this process is a rank."""
    return "RANK" in os.environ


if not is_rank():
    signal.signal(signal.SIGTERM, _end_ranks)


def start(world=2, limit=60):
    """Returns in a rank. Elsewhere starts the ranks, and ends with 1 if one failed."""
    if is_rank():
        return prepare()
    ended = run(world=world, limit=limit)
    failed = [
        f"rank {rank}: {end.code}"
        for rank, end in enumerate(ended)
        if end.code or end.left_processes
    ]
    print("exit codes:", ", ".join(failed) or "all 0", flush=True)
    sys.exit(1 if failed else 0)


# --- A rank ---

_failures = []
# Behind so many failures a program ends: its ranks may have come apart.
MOST_FAILURES = 12


def prepare():
    """Limits the rank: shortly before it is killed it prints what its threads do."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(1, float(os.environ["RANK_LIMIT"]) - 3), exit=False)


def init(bound=True, timeout=40):
    """Makes the default group. Bound to a device it exists at once and groups are split from it."""
    import torch
    import torch.distributed as dist

    device = device_of_rank()
    if ON_GPU:
        torch.cuda.set_device(device)
    bound_to = device if bound and ON_GPU else None
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=timeout), device_id=bound_to)
    return device


def device_of_rank():
    import torch

    return torch.device("cuda", 0) if ON_GPU else torch.device("cpu")


def finish(leave=True):
    """Leaves the group, and ends the process: with 1 if a check failed."""
    stop_if_wrong()
    if leave and "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    print("right", flush=True)


def stop_if_wrong():
    """Ends the process with 1 if a check failed.

    Peers may wait for calls that it has not made, so it meets nobody.
    """
    if _failures:
        print(f"{len(_failures)} checks failed", flush=True)
        sys.stdout.flush()
        os._exit(1)


def fail(what):
    print("WRONG:", what, flush=True)
    _failures.append(what)
    if len(_failures) >= MOST_FAILURES:
        stop_if_wrong()


@contextlib.contextmanager
def case(name):
    """Names what an exception belongs to, and goes on behind it."""
    try:
        yield
    except Exception as error:
        fail(f"{name}: {type(error).__name__}: {error}")
        traceback.print_exc()


def equal(name, got, want, tolerance=0.0):
    """Compares tensors: their bits, or within `tolerance` of the largest element of `want`."""
    import torch

    got = got.detach().cpu()
    want = want.detach().cpu()
    if got.shape != want.shape or got.dtype != want.dtype:
        return fail(f"{name}: {got.shape} {got.dtype}, not {want.shape} {want.dtype}")
    if got.numel() == 0:
        return None
    if not tolerance:
        wrong = got.view(torch.uint8).ne(want.view(torch.uint8)) if got.dim() else got != want
        wrong = wrong.view(-1, got.element_size()).any(1) if got.dim() else wrong.view(1)
    else:
        got, want = got.double(), want.double()
        wrong = ((got - want).abs() > tolerance * want.abs().max().clamp(min=1e-6)).view(
            -1
        ) | got.isnan().view(-1)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        several = f"{int(wrong.sum())} of {wrong.numel()} elements"
        return fail(
            f"{name}: {several} wrong, element {at} is {got.view(-1)[at]}, not {want.view(-1)[at]}"
        )
    return None


def true(name, holds):
    if not holds:
        fail(name)


def often(count, taking_turns=None):
    """`count`, or a tenth of it where ranks take turns on the GPU."""
    return count if SIDE_BY_SIDE else (taking_turns or max(1, count // 10))


def say(name, data=b""):
    """Tells the other ranks something, past every library: a file that is there as a whole."""
    folder = pathlib.Path(os.environ["MEETING"])
    (folder / f".{name}.{RANK}").write_bytes(data)
    (folder / f".{name}.{RANK}").rename(folder / name)


def hear(name, limit=30):
    """Waits until a rank has said `name`, and returns its data."""
    path, end = pathlib.Path(os.environ["MEETING"]) / name, time.monotonic() + limit
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"no rank has said {name!r} within {limit} s")
        time.sleep(0.002)
    return path.read_bytes()


class _Symbol(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def answering(function="ncclGetVersion"):
    """The file whose `function` the libraries of this process call, or None."""
    process, symbol = ctypes.CDLL(None), _Symbol()
    if not hasattr(process, function):
        return None
    process.dladdr(ctypes.cast(getattr(process, function), ctypes.c_void_p), ctypes.byref(symbol))
    return os.path.realpath(symbol.file.decode())


def libraries(name="libnccl"):
    """The files with `name` that this process has mapped."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    paths = {
        line.split(None, 5)[5]
        for line in lines
        if line.count("/") and len(line.split(None, 5)) == 6
    }
    return {path for path in paths if name in os.path.basename(path)}


# --- What a GPU has and a CPU has not ---


def synchronize():
    import torch

    if ON_GPU:
        torch.cuda.synchronize()


def stream():
    """A stream beside the current one, for `on`."""
    import torch

    return torch.cuda.Stream() if ON_GPU else None


@contextlib.contextmanager
def on(side, waits=True):
    """Work within goes to the stream `side`, behind what the current stream has now if `waits`."""
    import torch

    if not ON_GPU:
        yield
        return
    if waits:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield


def join(*sides):
    """The current stream waits for `sides`."""
    import torch

    for side in sides if ON_GPU else ():
        torch.cuda.current_stream().wait_stream(side)


def capture(work):
    """A graph of `work`, as a function that replays it. On a CPU it calls `work`."""
    import torch

    if not ON_GPU:
        return work
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def seconds(work, rounds):
    """The median time of `work` on the current stream over `rounds`, in seconds."""
    import torch

    times = []
    for _ in range(rounds):
        if ON_GPU:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            work()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        else:
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 2]
