"""One group on several streams, two groups at once, and calls beside computation."""

import ranks

ranks.start(limit=60)

import torch
import torch.distributed as dist


def filled(count, value):
    return torch.full((count,), float(value), device=device)


def one_group_on_two_streams():
    """Calls of one group run in the order of the program, whatever stream they are put on."""
    sides = [ranks.stream(), ranks.stream()]
    for step in range(ranks.often(50, taking_turns=10)):
        datas = [filled(10_000 + step, step + ranks.RANK + at) for at in range(2)]
        for at in range(2):
            with ranks.on(sides[at]):
                datas[at].mul_(2)
                dist.all_reduce(datas[at])
                datas[at].add_(1)
        # On the current stream at the same time.
        here = filled(77, ranks.RANK)
        dist.all_reduce(here)
        ranks.join(*sides)
        ranks.equal(f"step {step}, here", here, torch.full((77,), 1.0))
        for at in range(2):
            want = torch.full((10_000 + step,), 2.0 * (2 * step + 2 * at + 1) + 1)
            ranks.equal(f"step {step}, side {at}", datas[at], want)


def gathers_beside_reductions():
    """As FSDP2: gathers on one stream, reductions on another one, of one group."""
    gather, reduce = ranks.stream(), ranks.stream()
    for step in range(ranks.often(30, taking_turns=8)):
        out, part = filled(2 * 5001, 0), filled(5001, 10 * step + ranks.RANK)
        mine, whole = filled(3000, 0), filled(6000, step + ranks.RANK)
        with ranks.on(gather):
            dist.all_gather_into_tensor(out, part)
        with ranks.on(reduce):
            dist.reduce_scatter_tensor(mine, whole)
        ranks.join(gather, reduce)
        want = torch.cat([torch.full((5001,), 10.0 * step + rank) for rank in range(2)])
        ranks.equal(f"gather of step {step}", out, want)
        ranks.equal(f"reduction of step {step}", mine, torch.full((3000,), 2.0 * step + 1))


def two_groups_at_once():
    other = dist.new_group([0, 1])
    side = ranks.stream()
    for step in range(ranks.often(30, taking_turns=8)):
        first, second = filled(20_000, ranks.RANK), filled(100, 1)
        work = dist.all_reduce(first, async_op=True)
        with ranks.on(side):
            dist.all_reduce(second, group=other)
        work.wait()
        ranks.join(side)
        ranks.equal(f"world at step {step}", first, torch.full((20_000,), 1.0))
        ranks.equal(f"other group at step {step}", second, torch.full((100,), 2.0))


def beside_computation():
    """A call is in flight while the current stream multiplies matrices."""
    matrix = torch.randn(512, 512, generator=torch.Generator().manual_seed(0)).to(device)
    want = (matrix @ matrix).cpu()
    for step in range(ranks.often(20, taking_turns=5)):
        data = filled(2**20, ranks.RANK + step)
        work = dist.all_reduce(data, async_op=True)
        product = matrix @ matrix
        work.wait()
        ranks.equal(f"sum of step {step}", data, torch.full((2**20,), 2.0 * step + 1))
        ranks.equal(f"product of step {step}", product, want, tolerance=1e-4)


def new_memory_in_flight():
    """The allocator asks the driver for memory while calls are in flight."""
    kept = []
    for step in range(ranks.often(10, taking_turns=5)):
        data = filled(2**18, ranks.RANK)
        work = dist.all_reduce(data, async_op=True)
        kept.append(torch.empty(2**22 + 2**20 * step, device=device))
        work.wait()
        ranks.equal(f"sum of step {step}", data, torch.full((2**18,), 1.0))


device = ranks.init()
parts = [
    one_group_on_two_streams,
    gathers_beside_reductions,
    two_groups_at_once,
    beside_computation,
    new_memory_in_flight,
]
for part in parts:
    with ranks.case(part.__name__):
        part()
    print(part.__name__, "done", flush=True)
ranks.finish()
