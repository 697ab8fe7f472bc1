"""Calls in graphs: the first call of a group, within a layer, and beside plain calls."""

import ranks

ranks.start(limit=75)

import torch
import torch.distributed as dist
from torch import nn

REPLAYS = ranks.often(1000, taking_turns=100)
WIDTH = 256


def filled(count, value):
    return torch.full((count,), float(value), device=device)


def first_call_is_captured():
    """No call of this group has been made before."""
    group = dist.new_group([0, 1])
    x, y, wrong = (
        filled(10_000, 0),
        filled(10_000, 0),
        torch.zeros((), dtype=torch.int64, device=device),
    )

    def work():
        y.copy_(x)
        dist.all_reduce(y, group=group)

    replay = ranks.capture(work)
    for step in range(REPLAYS):
        x.fill_(step + ranks.RANK)
        replay()
        wrong += (y != 2 * step + 1).sum()
    ranks.true(f"{int(wrong)} elements of {REPLAYS} replays are wrong", int(wrong) == 0)


def several_calls_in_one_graph():
    """Calls of other types and of another group, and one that the group's own stream makes."""
    group = dist.new_group([0, 1])
    x = filled(3000, 1 + ranks.RANK)
    total, gathered, half, late = filled(3000, 0), filled(6000, 0), filled(1500, 0), filled(50, 0)

    def work():
        total.copy_(x)
        late.fill_(2.0)
        work = dist.all_reduce(late, async_op=True)
        dist.all_reduce(total)
        dist.all_gather_into_tensor(gathered, x, group=group)
        dist.reduce_scatter_tensor(half, x)
        work.wait()

    replay = ranks.capture(work)
    for _ in range(max(5, REPLAYS // 10)):
        for tensor in (total, gathered, half, late):
            tensor.zero_()
        replay()
    ranks.equal("sum", total, torch.full((3000,), 3.0))
    want = torch.cat([torch.full((3000,), 1.0), torch.full((3000,), 2.0)])
    ranks.equal("gather", gathered, want)
    ranks.equal("reduce_scatter", half, torch.full((1500,), 3.0))
    ranks.equal("async", late, torch.full((50,), 4.0))


def layer_of_tensor_parallelism():
    """A layer whose columns and rows are on two ranks, and plain calls between its replays."""
    generator = torch.Generator().manual_seed(3)
    up = torch.randn(WIDTH, 4 * WIDTH, generator=generator) / WIDTH**0.5
    down = torch.randn(4 * WIDTH, WIDTH, generator=generator) / (4 * WIDTH) ** 0.5
    mine_up = up.chunk(2, 1)[ranks.RANK].contiguous().to(device)
    mine_down = down.chunk(2, 0)[ranks.RANK].contiguous().to(device)
    up, down = up.to(device), down.to(device)
    x, y = torch.zeros(16, WIDTH, device=device), torch.zeros(16, WIDTH, device=device)

    def layer(data):
        part = nn.functional.gelu(data @ mine_up) @ mine_down
        dist.all_reduce(part)
        return part

    def block():
        y.copy_(layer(layer(x)))

    # The libraries of matrices want a call before a capture.
    block()
    replay, side = ranks.capture(block), ranks.stream()
    inputs = [torch.randn(16, WIDTH, generator=generator).to(device) for _ in range(8)]
    want = [nn.functional.gelu(data @ up) @ down for data in inputs]
    want = [nn.functional.gelu(data @ up) @ down for data in want]
    worst = torch.zeros((), device=device)
    for step in range(REPLAYS):
        x.copy_(inputs[step % 8])
        replay()
        worst = torch.maximum(worst, (y - want[step % 8]).abs().max())
        if step % 10 == 5:
            data = filled(100 + step, 1)
            dist.all_reduce(data)
            ranks.equal(f"plain call behind replay {step}", data, torch.full((100 + step,), 2.0))
        if step % 10 == 8:
            data = filled(50, step)
            with ranks.on(side):
                dist.all_reduce(data)
            ranks.join(side)
            ranks.equal(
                f"call on a stream behind replay {step}", data, torch.full((50,), 2.0 * step)
            )
    scale = max(float(data.abs().max()) for data in want)
    ranks.true(f"a replay differs by {float(worst)} of {scale}", float(worst) < 1e-4 * scale)


def replays_on_another_stream():
    x = filled(4096, 0)
    replay, side = ranks.capture(lambda: dist.all_reduce(x)), ranks.stream()
    for step in range(max(5, REPLAYS // 20)):
        x.fill_(step)
        with ranks.on(side):
            replay()
        ranks.join(side)
        ranks.equal(f"replay {step}", x, torch.full((4096,), 2.0 * step))


device = ranks.init()
for part in (
    first_call_is_captured,
    several_calls_in_one_graph,
    layer_of_tensor_parallelism,
    replays_on_another_stream,
):
    with ranks.case(part.__name__):
        part()
    ranks.synchronize()
    print(part.__name__, "done", flush=True)
ranks.finish()
