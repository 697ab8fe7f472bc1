"""Data parallelism: two ranks with half of the rows each train as one process with all rows."""

import ranks

ranks.start(limit=60)

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


class Network(nn.Module):
    """Several buckets of gradients, and buffers, which rank 0 sends before each step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Linear(64, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, 512),
            nn.ReLU(),
        )
        self.last = nn.Linear(512, 4)
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.steps += 1
        return self.last(self.layers(x)) * self.scale


def rows(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 64, generator=generator)
    return x.to(device), x[:, :4].sin().to(device)


def train(model, part, steps=STEPS):
    """The losses of `steps` steps on the part of the rows that `part` picks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = (part(half) for half in rows(step))
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def averaged(losses):
    total = losses.clone()
    dist.all_reduce(total)
    return total / 2


# Without a device the communicator is made by the first call, as in most programs.
device = ranks.init(bound=False)
half = lambda data: data.chunk(2)[ranks.RANK]
reference = Network().to(device)
wanted = train(reference, lambda data: data)

network = Network().to(device)
with torch.no_grad():
    # DDP makes all ranks begin with the weights of rank 0.
    for weight in network.parameters():
        weight.mul_(1 + ranks.RANK)
model = DistributedDataParallel(network, device_ids=[0] if ranks.ON_GPU else None, bucket_cap_mb=1)
losses = averaged(train(model, half))
print("losses", losses[0].item(), "...", losses[-1].item(), flush=True)
ranks.equal("losses of 20 steps", losses, wanted, tolerance=1e-3)
ranks.true("the loss falls", losses[-1] < losses[0])

weights = nn.utils.parameters_to_vector(network.parameters()).detach()
both = [torch.empty_like(weights) for _ in range(2)]
dist.all_gather(both, weights)
ranks.equal("weights of both ranks", both[0], both[1])
wanted_weights = nn.utils.parameters_to_vector(reference.parameters()).detach()
ranks.equal("weights after 20 steps", weights, wanted_weights, tolerance=1e-3)

# Gradients are summed over two steps before they travel once.
with model.no_sync():
    model(half(rows(100)[0])).sum().backward()
model(half(rows(101)[0])).sum().backward()
gradients = torch.cat([weight.grad.view(-1) for weight in network.parameters()])
dist.all_gather(both, gradients)
ranks.equal("gradients of both ranks", both[0], both[1])

compressed = DistributedDataParallel(Network().to(device), device_ids=[0] if ranks.ON_GPU else None)
compressed.register_comm_hook(None, bf16_compress_hook)
losses = averaged(train(compressed, half, steps=5))
ranks.equal("losses with gradients of bf16", losses, wanted[:5], tolerance=2e-2)
ranks.finish()
