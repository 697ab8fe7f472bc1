"""FSDP2 with f32 and with bf16, gathers ahead of their use, and tensor parallelism by DTensor."""

import ranks

ranks.start(limit=75)

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 20
LAYERS = 4


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width=130):
        # An odd half: a shard has no round length.
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(32, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(LAYERS))
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def rows(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 32, generator=generator)
    return x.to(device), x[:, :4].sin().to(device)


def train(model, part, steps=STEPS):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        x, y = (part(half) for half in rows(step))
        loss = nn.functional.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        losses.append(loss.detach().float())
    return torch.stack(losses)


def sharded(**policy):
    model = Network().to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    layers = list(model.layers)
    for at, layer in enumerate(layers):
        # Two gathers ahead in both directions, so that they are in flight beside reductions.
        layer.set_modules_to_forward_prefetch(layers[at + 1 : at + 3])
        layer.set_modules_to_backward_prefetch(list(reversed(layers[max(0, at - 2) : at])))
    return model


def averaged(losses):
    total = losses.clone()
    dist.all_reduce(total)
    return total / 2


device = ranks.init()
mesh = init_device_mesh(device.type, (2,))
half = lambda data: data.chunk(2)[ranks.RANK]
reference = Network().to(device)
wanted = train(reference, lambda data: data)

model = sharded()
losses = averaged(train(model, half))
print("f32:  losses", losses[0].item(), "...", losses[-1].item(), flush=True)
ranks.equal("losses with f32", losses, wanted, tolerance=1e-3)
for (name, weight), right in zip(model.named_parameters(), reference.parameters()):
    ranks.equal(f"weight {name}", weight.full_tensor(), right, tolerance=3e-2)

model = sharded(param_dtype=torch.bfloat16)
mine = train(model, half)
losses = averaged(mine)
print("bf16: losses", losses[0].item(), "...", losses[-1].item(), flush=True)
ranks.equal("losses with bf16", losses, wanted, tolerance=5e-2)
ranks.true("the loss falls", losses[-1] < 0.7 * losses[0])
whole = torch.cat([weight.full_tensor().view(-1) for weight in model.parameters()])
both = [torch.empty_like(whole) for _ in range(2)]
dist.all_gather(both, whole)
ranks.equal("whole weights on both ranks", both[0], both[1])

# Tensor parallelism: the columns of one matrix and the rows of the next one.
with ranks.case("tensor parallelism"):
    layer = Layer(128).to(device)
    x = torch.randn(8, 128, generator=torch.Generator().manual_seed(1)).to(device)
    want = layer(x).detach()
    parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    for _ in range(ranks.often(20)):
        got = layer(x)
    ranks.equal("a layer by DTensor", got, want, tolerance=1e-4)
    got.sum().backward()
    synced = layer.norm.weight.grad
    ranks.true("gradients are there", synced is not None and bool(synced.isfinite().all()))
ranks.finish()
