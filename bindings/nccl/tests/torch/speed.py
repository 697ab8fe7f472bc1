"""Times of calls, beside a copy of the same bytes on the same GPU.

A line has the bytes of a call and microseconds: of a plain call, of calls that are started together
and then waited for, of a call in a graph, and of a copy. GB/s are bytes by the time of a plain
call, and `by_copy` is that time by the copy's. Both ranks share one GPU, so an all-reduce moves at
least four times the bytes of a copy.
"""

import ranks

ranks.start(limit=75)

import json

import torch
import torch.distributed as dist

SIZES = [8, 64 << 10, 1 << 20, 16 << 20] + (
    [128 << 20, 256 << 20] if ranks.SIDE_BY_SIDE else [64 << 20]
)
if not ranks.ON_GPU:
    SIZES = SIZES[:4]


def timed(work, size):
    """Microseconds of one of the calls that `work(calls)` makes."""
    calls = ranks.often(20 if size <= 1 << 20 else 5, taking_turns=3)
    rounds = ranks.often(7 if size <= 16 << 20 else 3, taking_turns=3)
    work(2)
    dist.barrier()
    return ranks.seconds(lambda: work(calls), rounds) / calls * 1e6


def in_graph(work, size):
    calls = ranks.often(20 if size <= 1 << 20 else 5, taking_turns=3)
    replay = ranks.capture(lambda: work(calls))
    replay()
    dist.barrier()
    return (
        ranks.seconds(replay, ranks.often(7 if size <= 16 << 20 else 3, taking_turns=3))
        / calls
        * 1e6
    )


def repeated(call):
    def work(calls):
        for _ in range(calls):
            call()

    return work


def together(call):
    def work(calls):
        for waiting in [call() for _ in range(calls)]:
            waiting.wait()

    return work


def report(name, size, plain, **others):
    line = {
        "call": name,
        "bytes": size,
        "plain": round(plain, 1),
        "GB/s": round(size / plain / 1e3, 2),
    }
    line |= {key: round(value, 2) for key, value in others.items()}
    if ranks.RANK == 0:
        print(json.dumps(line), flush=True)


device = ranks.init()
for size in SIZES:
    data, other = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    copy = timed(repeated(lambda: other.copy_(data)), size)
    plain = timed(repeated(lambda: dist.all_reduce(data)), size)
    at_once = timed(together(lambda: dist.all_reduce(data, async_op=True)), size)
    graph = in_graph(repeated(lambda: dist.all_reduce(data)), size)
    report(
        "all_reduce", size, plain, together=at_once, graph=graph, copy=copy, by_copy=plain / copy
    )

for size in (8, 1 << 20, 16 << 20):
    data, parts = torch.zeros(max(2, size // 4), device=device), torch.zeros(
        max(2, size // 4), device=device
    )
    part = torch.zeros(len(data) // 2, device=device)
    calls = {
        "broadcast": lambda: dist.broadcast(data, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(data, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, data),
        "all_to_all": lambda: dist.all_to_all_single(parts, data),
    }
    for name, call in calls.items():
        report(name, size, timed(repeated(call), size))

    def there_and_back():
        if ranks.RANK == 0:
            dist.send(data, 1)
            dist.recv(data, 1)
        else:
            dist.recv(data, 0)
            dist.send(data, 0)

    report("send and recv", size, timed(repeated(there_and_back), size) / 2)
ranks.finish()
