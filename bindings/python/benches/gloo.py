"""Maypole beside gloo through ``torch.distributed``, in alternating rounds of one run.

    torchrun --nproc-per-node 2 gloo.py
    torchrun --nproc-per-node 4 gloo.py
    torchrun --nproc-per-node 2 gloo.py --busy 2

Prints medians and ratios of collectives, of messages there and back, of the all-reduces of a token in a
tensor-parallel decode, and of steps of DDP and FSDP2.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from alternate import SIZES, busy, compare, head, options, row
from torch_ranks import TorchRanks

BACKENDS = ("maypole", "gloo")
# All-reduces of one token: two in each of 50 layers.
CALLS_OF_TOKEN = 100


def collectives(group, size, world):
    """Functions that make one call each, by name. ``size``: bytes of the longer buffer."""
    count = max(size // 4, world)
    count -= count % world
    # `torch.zeros` would give pages that nobody has written. They are one page, which every cache holds.
    whole, other, part = (torch.full((length,), 0.0) for length in (count, count, count // world))
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather_single": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter_single": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(other, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "all_reduce, wait": lambda: dist.all_reduce(whole, group=group, async_op=True).wait(),
        "send and recv": lambda: there_and_back(whole, group),
    }


def there_and_back(message, group):
    """A message from each even rank to the next rank and back."""
    rank, world = dist.get_rank(), dist.get_world_size()
    peer = rank ^ 1
    if peer >= world:
        return
    if rank < peer:
        dist.send(message, peer, group=group)
    dist.recv(message, peer, group=group)
    if rank > peer:
        dist.send(message, peer, group=group)


def token(group, size):
    """All all-reduces of one token, which wait for one another."""
    activations = torch.full((size // 2,), 0.0, dtype=torch.bfloat16)

    def run():
        for _ in range(CALLS_OF_TOKEN):
            dist.all_reduce(activations, group=group)

    return run


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 512) for _ in range(8)]
    return torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))


def step(model):
    """One training step of a small batch: 8.4 MB of gradients."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    rows = torch.randn(8, 512)

    def run():
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def ddp(group):
    return step(DistributedDataParallel(network(), process_group=group))


def fsdp(group):
    model = network()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return step(model)


class Table:
    def __init__(self, groups, rounds, ranks):
        self.groups, self.rounds, self.ranks = groups, rounds, ranks

    def add(self, name, size, make):
        """A row: ``make(group)`` is the call on a group. Without a ratio if gloo does not have the call."""
        calls = {backend: make(group) for backend, group in self.groups.items()}
        try:
            calls["gloo"]()
        except RuntimeError as error:
            if self.ranks.is_first:
                print(f"| {name} | {size} | | {str(error).splitlines()[0]} | |")
            return
        seconds = compare(calls, self.rounds, self.ranks)
        if self.ranks.is_first:
            row(name, size, *(seconds[backend] for backend in BACKENDS))


def measure(table, sizes, world):
    for name in collectives(None, 8, world):
        for size in sizes:
            table.add(name, size, lambda group: collectives(group, size, world)[name])
    for size in (10 << 10, 20 << 10, 40 << 10, 64 << 10):
        table.add(f"token: {CALLS_OF_TOKEN} all_reduce, bf16", size, lambda group: token(group, size))
    parameters = sum(each.numel() * each.element_size() for each in network().parameters())
    table.add("step of DDP", parameters, ddp)
    table.add("step of FSDP2", parameters, fsdp)


def main():
    arguments = options(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = TorchRanks()
    world = dist.get_world_size()
    table = Table({name: dist.new_group(backend=name) for name in BACKENDS}, arguments.rounds, ranks)
    if ranks.is_first:
        print(f"{world} ranks, medians of {arguments.rounds} rounds\n")
        head(*BACKENDS)
    with busy(arguments.busy if ranks.is_first else 0):
        measure(table, [size for size in SIZES if size <= arguments.most], world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
