"""Leaving: groups that come and go, and a process that ends while its peer still reads."""

import os
import sys
import time

import ranks


def used():
    """Threads, open files, and bytes of the GPU that are in use."""
    free = torch.cuda.mem_get_info()[0] if ranks.ON_GPU else 0
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), -free


def destroyed():
    device = ranks.init()
    data = torch.ones(1000, device=device)
    dist.all_reduce(data)
    before = None
    groups = ranks.often(8, taking_turns=4)
    for at in range(1 + groups):
        group = dist.new_group([0, 1])
        data = torch.ones(1000, device=device)
        dist.all_reduce(data, group=group)
        ranks.equal(f"group {at}", data, torch.full((1000,), 2.0))
        ranks.synchronize()
        dist.destroy_process_group(group)
        dist.barrier()
        # The first group starts what stays.
        before = before or used()
    names = ("threads", "files", "bytes of the GPU")
    grown = {name: after - first for name, first, after in zip(names, before, used())}
    print(f"{groups} groups later, in use besides: {grown}", flush=True)
    ranks.true(
        f"threads and files are given back: {grown}",
        max(grown["threads"], grown["files"]) <= groups // 2,
    )
    ranks.true(f"memory of the GPU is given back: {grown}", grown["bytes of the GPU"] < 64 * 2**20)

    begun = time.monotonic()
    dist.destroy_process_group()
    print(f"leaving took {time.monotonic() - begun:.2f} s", flush=True)
    # A second world of the same processes.
    store = dist.FileStore(os.path.join(os.environ["MEETING"], "again"), 2)
    dist.init_process_group(ranks.BACKEND, store=store, rank=ranks.RANK, world_size=2)
    data = torch.ones(1000, device=device)
    dist.all_reduce(data)
    ranks.equal("the second world", data, torch.full((1000,), 2.0))
    ranks.finish()


def undestroyed():
    """Rank 1 is the root of the last call, so it is done first. It ends at once."""
    device = ranks.init()
    count = ranks.often(2**24, taking_turns=2**21)
    data = torch.full((count,), 1.0 + ranks.RANK, device=device)
    dist.broadcast(data, 1)
    ranks.synchronize()
    if ranks.RANK == 1:
        sys.exit(0)
    ranks.equal("the last broadcast", data, torch.full((count,), 2.0))
    ranks.finish()


def both_undestroyed():
    """Neither leaves: the interpreter ends with a group, as in many programs."""
    device = ranks.init(bound=False)
    data = torch.full((2**20,), 1.0 + ranks.RANK, device=device)
    dist.all_reduce(data)
    ranks.equal("the last sum", data, torch.full((2**20,), 3.0))
    ranks.finish(leave=False)


SCENARIOS = {
    "destroyed": destroyed,
    "undestroyed": undestroyed,
    "both_undestroyed": both_undestroyed,
}

if ranks.is_rank():
    ranks.prepare()
    import torch
    import torch.distributed as dist

    SCENARIOS[sys.argv[1]]()
else:
    wrong = False
    for name in sys.argv[1:] or SCENARIOS:
        begun = time.monotonic()
        ended = ranks.run([name], limit=40, label=f"{name} ")
        fine = all(end.code == 0 and not end.left_processes for end in ended)
        wrong |= not fine
        print(
            f"== {name}: {time.monotonic() - begun:.1f} s, codes {[end.code for end in ended]}, "
            f"processes left {[end.left_processes for end in ended]}",
            flush=True,
        )
    sys.exit(wrong)
