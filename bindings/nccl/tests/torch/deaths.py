"""What a rank is told when another one is killed, late, gone, or makes another call."""

import concurrent.futures
import os
import re
import signal
import sys
import time
from datetime import timedelta

import ranks

# How long a rank may take to be told, in seconds.
SOON = 20


def killed():
    """Rank 1 is killed while rank 0 waits in a call."""
    device = ranks.init()
    data = torch.ones(1000, device=device)
    for _ in range(3):
        dist.all_reduce(data)
    ranks.synchronize()
    if ranks.RANK == 1:
        # It has no call in flight: a process that is killed within a kernel can take others of MPS
        # with it.
        ranks.hear("called")
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error(lambda: dist.all_reduce(data, async_op=True))


def differs():
    """The ranks make calls that do not match."""
    device = ranks.init()
    data = torch.ones(1000 * (1 + ranks.RANK), device=device)
    expect_error(lambda: dist.all_reduce(data, async_op=True))


def never():
    """Rank 1 never calls; rank 0 has 5 seconds."""
    device = ranks.init()
    # Not of the start: ranks may come late to that.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5))
    data = torch.ones(1000, device=device)
    if ranks.RANK == 0:
        ranks.say("pid", str(os.getpid()).encode())
        expect_error(lambda: dist.all_reduce(data, async_op=True))
    pid, end = int(ranks.hear("pid")), time.monotonic() + 80
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < end:
        time.sleep(0.05)
    os._exit(0)


def expect_error(call):
    """Ends with 7 once the call has failed. A watchdog may end the process before, by signal 6."""
    begun = time.monotonic()
    try:
        work = call()
        ranks.say(f"called{ranks.RANK or ''}")
        work.wait()
        ranks.synchronize()
        # The stream is done, also where the call failed. A thread of PyTorch ends the process then.
        # It may write reports first.
        time.sleep(4 * SOON)
        print("NO ERROR", flush=True)
        os._exit(3)
    except (RuntimeError, ValueError) as error:
        print(
            f"told after {time.monotonic() - begun:.2f} s by {type(error).__name__}: {error}",
            flush=True,
        )
        os._exit(7)


def aborted():
    """Rank 0 gives up a call that rank 1 never makes, without ending."""
    device = ranks.init()
    data = torch.ones(1000, device=device)
    dist.all_reduce(data)
    ranks.synchronize()
    if ranks.RANK == 1:
        ranks.hear("aborted")
    else:
        work = dist.all_reduce(data, async_op=True)
        begun = time.monotonic()
        dist.distributed_c10d._abort_process_group()
        ranks.synchronize()
        took = time.monotonic() - begun
        print(f"the abort took {took:.2f} s", flush=True)
        ranks.true("the abort is quick", took < 5)
        del work
        ranks.equal("the GPU works", torch.ones(5, device=device) + 1, torch.full((5,), 2.0))
        ranks.say("aborted")
    if ranks.RANK == 1:
        dist.distributed_c10d._abort_process_group()
    ranks.finish(leave=False)


def late():
    """Rank 0 has made 20 calls before rank 1 makes its first."""
    device = ranks.init()
    if ranks.RANK == 1:
        ranks.hear("called")
    datas = [torch.full((1 + 500 * at,), 1.0 + ranks.RANK, device=device) for at in range(20)]
    works = [dist.all_reduce(data, async_op=True) for data in datas]
    if ranks.RANK == 0:
        ranks.say("called")
    for work, data in zip(works, datas):
        work.wait()
        ranks.equal(f"sum of {len(data)}", data, torch.full((len(data),), 3.0))
    ranks.finish()


def leaves():
    """Rank 1 leaves the group as soon as its last call is done; rank 0 reads its result later."""
    device = ranks.init()
    data = torch.full((2**18,), 1.0 + ranks.RANK, device=device)
    dist.all_reduce(data)
    if ranks.RANK == 1:
        ranks.synchronize()
        ranks.say("leaves")
    else:
        ranks.hear("leaves")
    ranks.equal("the last sum", data, torch.full((2**18,), 3.0))
    ranks.finish()


def told(end, name_of_rank=None):
    """What is wrong with how a rank ended that was to be told an error."""
    if end.code not in (7, -signal.SIGABRT):
        return f"ended with {end.code}"
    if name_of_rank and not ranks.IS_GLOO and not re.search(rf"\brank {name_of_rank}\b", end.text):
        return f"does not name rank {name_of_rank}"
    return None


def right(end):
    return None if end.code == 0 else f"ended with {end.code}"


# In these, wait() raises what went wrong. Otherwise a thread of PyTorch ends the process with it.
RAISES = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
# Name: (what it does, variables, whether gloo can, what is wrong with rank 0 and with rank 1).
SCENARIOS = {
    "killed": (
        killed,
        {},
        True,
        lambda end: told(end, 1),
        lambda end: None if end.code == -9 else "lives",
    ),
    "killed-raises": (
        killed,
        RAISES,
        True,
        lambda end: told(end, 1),
        lambda end: None if end.code == -9 else "lives",
    ),
    "differs": (differs, RAISES, False, told, told),
    "never": (never, {}, True, told, right),
    # PyTorch asks for this where a program aborts a group by itself.
    "aborted": (aborted, {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, False, right, right),
    "late": (late, {}, True, right, right),
    "leaves": (leaves, {}, True, right, right),
}


def judge(name):
    """Runs a scenario, and returns what is wrong with it."""
    _, variables, _, zero, one = SCENARIOS[name]
    # A watchdog that writes a report first takes long to end a process.
    variables = {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",
    } | variables
    begun = time.monotonic()
    ended = ranks.run([name], limit=100, env=variables, others_after=4 * SOON, label=f"{name} ")
    took = time.monotonic() - begun
    wrong = [
        f"rank {rank} {what}" for rank, what in enumerate([zero(ended[0]), one(ended[1])]) if what
    ]
    wrong += [
        f"rank {rank} leaves processes" for rank, end in enumerate(ended) if end.left_processes
    ]
    print(
        f"== {name}: {took:.1f} s, codes {[end.code for end in ended]}: {', '.join(wrong) or 'ok'}",
        flush=True,
    )
    return wrong


if ranks.is_rank():
    ranks.prepare()
    import torch
    import torch.distributed as dist

    SCENARIOS[sys.argv[1]][0]()
else:
    names = sys.argv[1:] or [
        name for name, scenario in SCENARIOS.items() if scenario[2] or not ranks.IS_GLOO
    ]
    # Side by side: most of a scenario's time is the start of its processes.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        sys.exit(1 if any(list(pool.map(judge, names))) else 0)
