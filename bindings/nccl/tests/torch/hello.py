"""The least that has to work: an all-reduce of one rank alone, and one of 8 bytes among two."""

import ranks

ranks.start(limit=45)

import os

import torch
import torch.distributed as dist

print(
    "torch",
    torch.__version__,
    "NCCL it was built for:",
    torch.cuda.nccl.version() if ranks.ON_GPU else "-",
    flush=True,
)
# A newer PyTorch maps its own file as well, and calls nothing in it.
print("libnccl:", *ranks.libraries(), flush=True)
wanted = os.environ.get("NCCL_LIBRARY")
if wanted:
    found = ranks.answering()
    ranks.true(f"{found} answers, not {wanted}", found == os.path.realpath(wanted))

device = ranks.device_of_rank()
with ranks.case("one rank alone"):
    if ranks.ON_GPU:
        torch.cuda.set_device(device)
    dist.init_process_group(ranks.BACKEND, store=dist.HashStore(), rank=0, world_size=1)
    data = torch.arange(2.0, device=device)
    dist.all_reduce(data)
    ranks.equal("one rank alone", data, torch.arange(2.0))
    dist.destroy_process_group()
    print("one rank alone: done", flush=True)

with ranks.case("two ranks"):
    ranks.init(bound=False, timeout=15)
    data = torch.arange(2.0, device=device) + ranks.RANK
    dist.all_reduce(data)
    ranks.equal("two ranks", data, torch.tensor([1.0, 3.0]))
    print("two ranks: done", flush=True)
ranks.finish()
