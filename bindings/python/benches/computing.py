"""Maypole beside gloo where a rank waits for one that computes, in alternating rounds of one run.

    torchrun --nproc-per-node 2 computing.py

Even ranks start a call and multiply matrices; odd ranks make the call and wait for it. Prints medians of the
longest wait, and ratios.
"""

import time

import torch
import torch.distributed as dist

from alternate import SIZES, busy, head, options, row
from torch_ranks import TorchRanks

BACKENDS = ("maypole", "gloo")
# Longer than any of the calls takes.
COMPUTING = 0.1


def calls(data, group):
    """By name: what a rank that computes starts, and what the next rank waits for."""
    peer = dist.get_rank() ^ 1
    return {
        "all_reduce": (
            lambda: dist.all_reduce(data, group=group, async_op=True),
            lambda: dist.all_reduce(data, group=group),
        ),
        "send": (lambda: dist.isend(data, peer, group=group), lambda: dist.recv(data, peer, group=group)),
        "recv": (lambda: dist.irecv(data, peer, group=group), lambda: dist.send(data, peer, group=group)),
    }


def compute(matrix, seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        matrix @ matrix


def seconds_waited(start, wait, matrix, ranks):
    """Seconds of the longest wait of an odd rank."""
    ranks.barrier()
    since = time.perf_counter()
    if dist.get_rank() % 2:
        wait()
        return ranks.most(time.perf_counter() - since)
    work = start()
    compute(matrix, COMPUTING)
    work.wait()
    return ranks.most(0.0)


def main():
    arguments = options(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, matrix = TorchRanks(), torch.randn(256, 256)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    if ranks.is_first:
        print(f"{dist.get_world_size()} ranks, medians of {arguments.rounds} rounds\n")
        head(*BACKENDS)
    with busy(arguments.busy if ranks.is_first else 0):
        for size in (size for size in SIZES if size <= arguments.most):
            data = torch.full((max(size // 4, 1),), 0.0)
            for name in calls(data, None):
                seconds = {backend: [] for backend in BACKENDS}
                for at in range(arguments.rounds):
                    for backend in BACKENDS if at % 2 else reversed(BACKENDS):
                        start, wait = calls(data, groups[backend])[name]
                        seconds[backend].append(seconds_waited(start, wait, matrix, ranks))
                if ranks.is_first:
                    row(name, size, *(seconds[backend] for backend in BACKENDS))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
