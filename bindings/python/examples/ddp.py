"""Data-parallel training of PyTorch: torchrun --nproc-per-node 2 ddp.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("maypole")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
for step in range(50):
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
