"""What ranks.rs measures, of Gloo."""

import statistics
import time

import torch
import torch.distributed as dist

ROW, ALONE, SKIPPED, AHEAD = 10, 9, 2, 0.03


def latest(mine):
    time_of_all = torch.tensor([mine], dtype=torch.float64)
    dist.all_reduce(time_of_all, op=dist.ReduceOp.MAX)
    return time_of_all.item()


def measure(name, size, rank, world):
    block = max(size // 4 // world, 1)
    whole, part = torch.ones(block * world), torch.ones(block)
    received = torch.zeros(block * world)
    calls = {
        "broadcast": lambda: dist.broadcast(received, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(received, part),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all-to-all": lambda: dist.all_to_all_single(received, whole),
    }
    call = calls[name]
    try:
        call()
    except RuntimeError:
        return  # Gloo lacks it, on all ranks alike.
    alone = []
    for _ in range(ALONE):
        dist.barrier()
        start = latest(time.time()) + AHEAD
        time.sleep(max(start - time.time(), 0))
        call()
        end = time.time()
        alone.append((latest(0.0 if name == "reduce" and rank else end) - start) * 1e6)
        whole.fill_(1)
    dist.barrier()
    start = time.time()
    for _ in range(ROW):
        call()
    dist.barrier()
    row = (time.time() - start) * 1e6 / ROW
    if rank == 0:
        print(name, block * world * 4, f"{statistics.median(alone[SKIPPED:]):.1f} {row:.1f}", flush=True)


torch.set_num_threads(1)
dist.init_process_group("gloo")
for collective in ["broadcast", "reduce", "all-reduce", "all-gather", "reduce-scatter", "all-to-all"]:
    for length in [64, 64 << 10, 1 << 20]:
        measure(collective, length, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
