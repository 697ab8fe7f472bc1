"""Messages, blocks whose lengths change with each call, groups of ranks, and lists."""

import ranks

ranks.start(limit=70)

import torch
import torch.distributed as dist
from torch.distributed import P2POp, ReduceOp

PEER = 1 - ranks.RANK


def row(count, seed, rank=ranks.RANK):
    return torch.randn(count, generator=torch.Generator().manual_seed(10 * seed + rank))


def zeros(count):
    return torch.zeros(count, device=device)


def messages():
    """Both ways at once, several at once; the lengths differ by direction and from step to step."""
    for step in range(ranks.often(40, taking_turns=10)):
        counts = [[1 + 97 * step, 1, 5000 - 7 * step], [1 + 31 * step, 1000, 3]]
        sent = [row(count, step).to(device) for count in counts[ranks.RANK]]
        received = [zeros(count) for count in counts[PEER]]
        operations = [P2POp(dist.isend, data, PEER) for data in sent]
        operations += [P2POp(dist.irecv, data, PEER) for data in received]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        for data, count in zip(received, counts[PEER]):
            ranks.equal(f"batch of step {step}, {count}", data, row(count, step, PEER))


def message_alone():
    for count in (1, 1001, 2**18):
        data = zeros(count)
        if ranks.RANK == 0:
            dist.send(row(count, 1).to(device), 1)
            dist.recv(data, 1)
        else:
            dist.recv(data, 0)
            dist.send(row(count, 1).to(device), 0)
        ranks.equal(f"send and recv of {count}", data, row(count, 1, PEER))
    sent, data = row(300, 2).to(device), zeros(300)
    works = (
        [dist.isend(sent, PEER), dist.irecv(data, PEER)]
        if ranks.RANK == 0
        else [dist.irecv(data, PEER), dist.isend(sent, PEER)]
    )
    for work in works:
        work.wait()
    ranks.equal("isend and irecv", data, row(300, 2, PEER))


def blocks_that_change():
    """As experts' tokens: another split at each step, some of nothing."""
    for step in range(ranks.often(60, taking_turns=15)):
        # splits[a][b]: the elements that rank a has for rank b.
        splits = [[(13 * step + 7 * a + 5 * b) % 101 for b in range(2)] for a in range(2)]
        if step % 10 == 3:
            splits[0][1] = 0
        if step % 10 == 7:
            splits = [[0, 4096], [0, 0]]
        inputs = [row(sum(splits[a]), step, a) for a in range(2)]
        out = zeros(splits[0][ranks.RANK] + splits[1][ranks.RANK])
        here = [splits[0][ranks.RANK], splits[1][ranks.RANK]]
        dist.all_to_all_single(out, inputs[ranks.RANK].to(device), here, splits[ranks.RANK])
        parts = [inputs[a].split(splits[a])[ranks.RANK] for a in range(2)]
        ranks.equal(f"all_to_all_single of step {step}: {splits}", out, torch.cat(parts))


def new_groups():
    both = dist.new_group([0, 1])
    alone = [dist.new_group([rank]) for rank in range(2)]
    turned = dist.new_group([1, 0], use_local_synchronization=False)
    for name, group in (("both", both), ("turned", turned)):
        data = torch.full((10,), 1.0 + ranks.RANK, device=device)
        dist.all_reduce(data, group=group)
        ranks.equal(f"new group: {name}", data, torch.full((10,), 3.0))
    data = torch.full((10,), 1.0 + ranks.RANK, device=device)
    dist.all_reduce(data, group=alone[ranks.RANK])
    ranks.equal("new group: alone", data, torch.full((10,), 1.0 + ranks.RANK))
    dist.barrier(both)
    for group in (both, alone[ranks.RANK], turned):
        dist.destroy_process_group(group)
    dist.all_reduce(data)
    ranks.equal("the world after a group is gone", data, torch.full((10,), 3.0))


def split_groups():
    everybody, each = [[0, 1]], [[0], [1]]
    for name, parts, want in (("both", everybody, 3.0), ("each alone", each, 1.0 + ranks.RANK)):
        group = dist.split_group(split_ranks=parts)
        data = torch.full((10,), 1.0 + ranks.RANK, device=device)
        dist.all_reduce(data, group=group)
        ranks.equal(f"split group: {name}", data, torch.full((10,), want))
        dist.destroy_process_group(group)


def many_groups_at_once():
    """As the axes of a mesh: all are open, and each has a communicator."""
    groups = [dist.new_group([0, 1]) for _ in range(6)]
    datas = [torch.full((1000,), 1.0 + at + ranks.RANK, device=device) for at in range(6)]
    works = [
        dist.all_reduce(data, group=group, async_op=True) for data, group in zip(datas, groups)
    ]
    for at, (work, data) in enumerate(zip(works, datas)):
        work.wait()
        ranks.equal(f"sum of group {at} of 6", data, torch.full((1000,), 3.0 + 2 * at))
    for group in groups:
        dist.destroy_process_group(group)


def coalesced():
    datas = [torch.full((count,), 1.0 + ranks.RANK, device=device) for count in (3, 1000, 1)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for data in datas:
            dist.all_reduce(data)
    manager.wait()
    for data in datas:
        ranks.equal("coalesced all_reduce", data, torch.full((len(data),), 3.0))
    outs = [zeros(2 * count) for count in (5, 700)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for out in outs:
            part = torch.full((len(out) // 2,), float(ranks.RANK), device=device)
            dist.all_gather_into_tensor(out, part)
    manager.wait()
    for out in outs:
        want = torch.cat([torch.full((len(out) // 2,), float(rank)) for rank in range(2)])
        ranks.equal("coalesced all_gather_into_tensor", out, want)


def lists():
    outs = [zeros(4), zeros(9)]
    mine = row([4, 9][ranks.RANK], 3).to(device)
    dist.all_gather(outs, mine)
    for rank in range(2):
        ranks.equal(f"uneven all_gather, rank {rank}", outs[rank], row([4, 9][rank], 3, rank))
    inputs = [[row(count, 4 + count, rank) for count in (4, 9)] for rank in range(2)]
    out = zeros([4, 9][ranks.RANK])
    dist.reduce_scatter(out, [data.to(device) for data in inputs[ranks.RANK]])
    ranks.equal("uneven reduce_scatter", out, inputs[0][ranks.RANK] + inputs[1][ranks.RANK])


def objects():
    things = [{"from": ranks.RANK, "text": "x" * 1000}] if ranks.RANK == 1 else [None]
    dist.broadcast_object_list(things, src=1, device=device)
    ranks.true("broadcast_object_list", things == [{"from": 1, "text": "x" * 1000}])
    gathered = [None, None]
    dist.all_gather_object(gathered, ("rank", ranks.RANK, "y" * (10 + 500 * ranks.RANK)))
    ranks.true("all_gather_object", [thing[1] for thing in gathered] == [0, 1])
    outs = [zeros(5), zeros(5)] if ranks.RANK == 1 else None
    dist.gather(row(5, 6).to(device), outs, 1)
    if outs:
        ranks.equal("gather", torch.cat(outs), torch.cat([row(5, 6, rank) for rank in range(2)]))
    out = zeros(5)
    dist.scatter(
        out, [row(5, 7, rank).to(device) for rank in range(2)] if ranks.RANK == 0 else None, 0
    )
    ranks.equal("scatter", out, row(5, 7))


def barriers_and_waits():
    for _ in range(3):
        dist.barrier()
    # Many calls in flight, waited for in another order.
    datas = [torch.full((100 + at,), 1.0 + at + ranks.RANK, device=device) for at in range(8)]
    works = [dist.all_reduce(data, ReduceOp.MAX, async_op=True) for data in datas]
    for work in reversed(works):
        work.wait()
    for at, data in enumerate(datas):
        ranks.equal(f"async all_reduce {at}", data, torch.full((100 + at,), 2.0 + at))


device = ranks.init()
parts = [messages, message_alone, blocks_that_change, new_groups, objects]
if not ranks.IS_GLOO:
    parts += [barriers_and_waits, coalesced, lists, split_groups]
parts += [many_groups_at_once]
for part in parts:
    with ranks.case(part.__name__):
        part()
    print(part.__name__, "done", flush=True)
ranks.finish()
