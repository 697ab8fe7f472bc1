"""Every collective with every type and operation, against what a CPU makes of all inputs."""

import ranks

ranks.start(limit=75)

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

KINDS = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
FACTORS = [0.25, 0.5]


def values(kind, count, seed, rank):
    """What `rank` puts in. Sums and products of two such values fit each type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if kind.is_floating_point:
        return torch.randn(count, generator=generator).to(kind)
    most = 10 if kind == torch.uint8 else 2**30
    return torch.randint(
        0 if kind == torch.uint8 else -most, most, (count,), generator=generator, dtype=kind
    )


def combined(inputs, operation):
    """Two values are combined in one step, so that there is one right result to the bit."""
    if operation == "sum":
        return inputs[0] + inputs[1]
    if operation == "avg":
        total = inputs[0] + inputs[1]
        return (
            total / 2 if total.is_floating_point() else torch.div(total, 2, rounding_mode="trunc")
        )
    if operation == "premul":
        # The factors are powers of two, so a product is exact.
        return inputs[0] * FACTORS[0] + inputs[1] * FACTORS[1]
    return {"max": torch.maximum, "min": torch.minimum, "product": torch.mul}[operation](*inputs)


def tolerance(name, kind):
    """Half of the smallest f16 is none; a library may halve before it adds."""
    return 1e-6 if kind == torch.float16 and name in ("avg", "premul") else 0.0


def operation_of(name, kind):
    if name == "premul":
        factor = FACTORS[ranks.RANK]
        # A tensor is read by the kernel; a number is read when the operation is made.
        is_tensor = kind == torch.float32
        return dist._make_nccl_premul_sum(
            torch.tensor([factor], device=device) if is_tensor else factor
        )
    return getattr(ReduceOp, name.upper())


def operations(kind):
    # gloo has neither averages nor factors. PyTorch passes a factor of bf16 as the bytes of an f32, so
    # whichever library is below, the result is not the product.
    names = ["sum", "max", "min", "product"]
    if not ranks.IS_GLOO:
        names += ["avg"] + (["premul"] if kind in (torch.float16, torch.float32) else [])
    return names


def all_reduce(kind, count, seed):
    everybody = [values(kind, count, seed, rank) for rank in range(2)]
    for name in operations(kind):
        data = mine(everybody)
        dist.all_reduce(data, operation_of(name, kind))
        want = combined(everybody, name)
        ranks.equal(f"all_reduce {name} {kind} {count}", data, want, tolerance(name, kind))


def reduce(kind, count, seed):
    everybody = [values(kind, count, seed, rank) for rank in range(2)]
    for root in range(2):
        for name in ["sum", "max"] + ([] if ranks.IS_GLOO else ["avg"]):
            data = mine(everybody)
            dist.reduce(data, root, operation_of(name, kind))
            if ranks.RANK == root:
                want = combined(everybody, name)
                what = f"reduce {name} {kind} {count} to {root}"
                ranks.equal(what, data, want, tolerance(name, kind))


def broadcast(kind, count, seed):
    everybody = [values(kind, count, seed, rank) for rank in range(2)]
    for root in range(2):
        data = mine(everybody)
        dist.broadcast(data, root)
        ranks.equal(f"broadcast {kind} {count} from {root}", data, everybody[root])


def all_gather(kind, count, seed):
    everybody = [values(kind, count, seed, rank) for rank in range(2)]
    out = empty(2 * count, kind)
    dist.all_gather_into_tensor(out, mine(everybody))
    ranks.equal(f"all_gather_into_tensor {kind} {count}", out, torch.cat(everybody))
    # In place: the input is the rank's part of the output.
    out = empty(2 * count, kind)
    part = out.chunk(2)[ranks.RANK]
    part.copy_(everybody[ranks.RANK])
    dist.all_gather_into_tensor(out, part)
    ranks.equal(f"all_gather_into_tensor in place {kind} {count}", out, torch.cat(everybody))
    outs = [empty(count, kind) for _ in range(2)]
    dist.all_gather(outs, mine(everybody))
    ranks.equal(f"all_gather list {kind} {count}", torch.cat(outs), torch.cat(everybody))


def reduce_scatter(kind, count, seed):
    everybody = [values(kind, 2 * count, seed, rank) for rank in range(2)]
    for name in operations(kind):
        want = combined(everybody, name).chunk(2)[ranks.RANK]
        out = empty(count, kind)
        dist.reduce_scatter_tensor(out, mine(everybody), operation_of(name, kind))
        what = f"reduce_scatter_tensor {name} {kind} {count}"
        ranks.equal(what, out, want, tolerance(name, kind))
        # In place: the output is the rank's part of the input.
        data = mine(everybody)
        out = data.chunk(2)[ranks.RANK]
        if not ranks.IS_GLOO:
            dist.reduce_scatter_tensor(out, data, operation_of(name, kind))
            ranks.equal(f"{what} in place", out, want, tolerance(name, kind))
    out = empty(count, kind)
    dist.reduce_scatter(out, list(mine(everybody).chunk(2)))
    want = combined(everybody, "sum").chunk(2)[ranks.RANK]
    ranks.equal(f"reduce_scatter list {kind} {count}", out, want)


def all_to_all(kind, count, seed):
    everybody = [values(kind, 2 * count, seed, rank) for rank in range(2)]
    want = torch.cat([data.chunk(2)[ranks.RANK] for data in everybody])
    out = empty(2 * count, kind)
    dist.all_to_all_single(out, mine(everybody))
    ranks.equal(f"all_to_all_single {kind} {count}", out, want)
    if not ranks.IS_GLOO:
        outs = [empty(count, kind) for _ in range(2)]
        dist.all_to_all(outs, list(mine(everybody).chunk(2)))
        ranks.equal(f"all_to_all {kind} {count}", torch.cat(outs), want)


def gather_and_scatter(kind, count, seed):
    everybody = [values(kind, count, seed, rank) for rank in range(2)]
    for root in range(2):
        is_root = ranks.RANK == root
        outs = [empty(count, kind) for _ in range(2)] if is_root else None
        dist.gather(mine(everybody), outs, root)
        if is_root:
            ranks.equal(f"gather {kind} {count} to {root}", torch.cat(outs), torch.cat(everybody))
        out = empty(count, kind)
        dist.scatter(out, [data.to(device) for data in everybody] if is_root else None, root)
        ranks.equal(f"scatter {kind} {count} from {root}", out, everybody[ranks.RANK])


def other_types():
    """Types that travel as others: bool and 8-bit floats as bytes, complex numbers as pairs."""
    data = torch.tensor([ranks.RANK == 1, False, True], device=device)
    if not ranks.IS_GLOO:
        dist.all_reduce(data)
        ranks.equal("all_reduce bool", data, torch.tensor([True, False, True]))
    data = torch.full((5,), complex(1 + ranks.RANK, 2), device=device, dtype=torch.complex64)
    dist.all_reduce(data)
    ranks.equal("all_reduce complex64", data.real.contiguous(), torch.full((5,), 3.0))
    if not ranks.IS_GLOO:
        data = torch.full((9,), 1.5 * ranks.RANK, device=device).to(torch.float8_e4m3fn)
        dist.broadcast(data, 1)
        ranks.equal("broadcast float8", data.float(), torch.full((9,), 1.5))
    if ranks.BACKEND == "nccl":
        # The average of large values of f16 does not become infinite.
        data = torch.full((8,), 60000.0, device=device, dtype=torch.float16)
        dist.all_reduce(data, ReduceOp.AVG)
        ranks.equal(
            "all_reduce avg of large f16", data, torch.full((8,), 60000.0, dtype=torch.float16)
        )
    if not ranks.IS_GLOO:
        # A third is not exact in any of these types.
        data = torch.full((1000,), 1.0 + ranks.RANK, device=device)
        dist.all_reduce(data, dist._make_nccl_premul_sum(1 / 3))
        ranks.equal("all_reduce premul by a third", data, torch.ones(1000), tolerance=1e-6)
    # Strided rows that are contiguous, and nothing at all.
    data = torch.ones(4, 6, device=device)[1:3]
    dist.all_reduce(data)
    ranks.equal("all_reduce of rows", data, torch.full((2, 6), 2.0))
    data = torch.ones(0, device=device)
    dist.all_reduce(data)
    ranks.equal("all_reduce of nothing", data, torch.ones(0))


def mine(everybody):
    return everybody[ranks.RANK].to(device).clone()


def empty(count, kind):
    return torch.zeros(count, dtype=kind, device=device)


device = ranks.init(bound=False)
CALLS = [all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather_and_scatter]
seed = 0
for kind in KINDS:
    # The last one is 1 MiB.
    for count in (1, 7, 1021, 2**20 // kind.itemsize):
        for call in CALLS:
            seed += 1
            with ranks.case(f"{call.__name__} {kind} {count}"):
                call(kind, count, seed)
    print(kind, "done", flush=True)
with ranks.case("other types"):
    other_types()
ranks.finish()
