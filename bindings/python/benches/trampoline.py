"""What a call through PyTorch costs before a backend does anything, beside gloo and maypole, at 8 bytes.

    torchrun --nproc-per-node 2 trampoline.py

"fake" is PyTorch's own backend that does nothing, in C++. "python" is the least backend in Python: it returns a
work that is over. So "python" less "fake" is the price of being written in Python.
"""

import argparse
import statistics

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # It registers the backend "fake".
from torch._C._distributed_c10d import Backend
from torch.futures import Future

from alternate import compare, warn_if_not_optimised
from torch_ranks import TorchRanks


class FinishedWork(dist.Work):
    def __init__(self, tensors):
        super().__init__()
        self._future = Future()
        self._future.set_result(tensors)

    def wait(self, timeout=None):
        return True

    def get_future(self):
        return self._future


class PythonBackend(Backend):
    """Returns at once from the calls of this program."""

    kept = []

    def __init__(self, rank, world):
        super().__init__(rank, world)
        # PyTorch keeps the C++ half alone.
        self.kept.append(self)

    def getBackendName(self):
        return "python"

    def allreduce(self, tensors, opts=None):
        return FinishedWork(tensors)

    def barrier(self, opts=None):
        return FinishedWork([])

    def shutdown(self):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="how often each backend has its turn")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    create = lambda options, _: PythonBackend(options.group_rank, options.group_size)
    dist.Backend.register_backend("python", create, extended_api=True, devices=["cpu"])
    dist.init_process_group("gloo")
    ranks = TorchRanks()
    data = torch.zeros(2)
    calls = {}
    for name in ("fake", "python", "maypole", "gloo"):
        group = dist.new_group(backend=name)
        calls[name] = lambda group=group: dist.all_reduce(data, group=group)
    seconds = compare(calls, rounds, ranks)
    if ranks.is_first:
        warn_if_not_optimised()
        print(f"all_reduce of 8 bytes, {dist.get_world_size()} ranks, medians of {rounds} rounds\n")
        print("| backend | us |\n|---|---|")
        for name, each in seconds.items():
            print(f"| {name} | {statistics.median(each) * 1e6:.1f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
