"""A rank that dies or comes too late under PyTorch is an exception on every survivor, and never a signal."""

from textwrap import dedent

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run

# Each program names what all ranks do in one step.
STEPS = {
    "ddp": """
        model = nn.parallel.DistributedDataParallel(network())
        def step(at):
            model(rows(at)).square().mean().backward()
    """,
    "fsdp": """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        model = fully_shard(network(), mesh=init_device_mesh("cpu", (world,)))
        def step(at):
            model(rows(at)).square().mean().backward()
    """,
    "dtensor": """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard
        mesh = init_device_mesh("cpu", (world,))
        def step(at):
            # Survivors must not take what is still under way for the tensor.
            DTensor.from_local(torch.ones(4, 4), mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local().sum()
    """,
    "pipelining": """
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        torch.manual_seed(0)
        stage = PipelineStage(nn.Linear(8, 8), rank, world, torch.device("cpu"))
        plan = Schedule1F1B(stage, 4, loss_fn=lambda got, wanted: (got - wanted).square().mean())
        def step(at):
            data = torch.ones(8, 8)
            plan.step(*([data] if rank == 0 else []), **({"target": data} if rank == world - 1 else {}))
    """,
}
TENSORS = """
        mine, whole = torch.ones(4), torch.ones(4 * world)
        parts = [torch.ones(4) for _ in range(world)]
        def step(at):
            {call}
"""
CALLS = {
    "all_reduce": "dist.all_reduce(mine)",
    "all_reduce, later": "dist.all_reduce(mine, async_op=True).wait()",
    "all_reduce, future": "dist.all_reduce(mine, async_op=True).get_future().wait()",
    "broadcast": "dist.broadcast(mine, at % world)",
    "reduce": "dist.reduce(mine, at % world)",
    "all_gather": "dist.all_gather(parts, mine)",
    "all_gather_into_tensor": "dist.all_gather_into_tensor(whole, mine)",
    "reduce_scatter": "dist.reduce_scatter(mine, parts)",
    "reduce_scatter_tensor": "dist.reduce_scatter_tensor(mine, whole)",
    "all_to_all": "dist.all_to_all([torch.empty(4) for _ in range(world)], parts)",
    "all_to_all_single": "dist.all_to_all_single(whole, whole.clone())",
    "gather": "dist.gather(mine, parts if rank == at % world else None, at % world)",
    "scatter": "dist.scatter(mine, parts if rank == at % world else None, at % world)",
    "barrier": "dist.barrier()",
    "batch_isend_irecv": "[work.wait() for work in dist.batch_isend_irecv(["
    "dist.P2POp(dist.isend, mine, (rank + 1) % world), dist.P2POp(dist.irecv, parts[0], (rank - 1) % world)])]",
}
STEPS.update({name: TENSORS.format(call=call) for name, call in CALLS.items()})
# Once the group has been formed, a call waits for one second.
SHORTER = """
dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
"""
SURVIVE = """
try:
    for at in range(1000):
        if rank == 1 and at == 5:
            {fault}
        step(at)
    print("nothing was said")
except RuntimeError as error:
    print("told:", error, flush=True)
os._exit(0)
"""


def survivors(name, fault, code):
    program = dedent(STEPS[name]) + SURVIVE.format(fault=fault)
    said = run(2, program, codes=[0, code])
    assert "told:" in said[0] and "rank 1" in said[0], said


@pytest.mark.parametrize("name", STEPS)
def test_a_killed_rank_is_named_by_the_survivor(name):
    survivors(name, "os.kill(os.getpid(), signal.SIGKILL)", -9)


@pytest.mark.parametrize("name", STEPS)
def test_a_late_rank_is_named_by_the_others(name):
    program = SHORTER + dedent(STEPS[name]) + SURVIVE.format(fault="time.sleep(3)")
    said = run(2, program)
    assert "told:" in said[0] and "rank 1" in said[0], said


def test_ranks_with_other_types_of_one_size_are_told():
    # PyTorch itself passes the parts of complex numbers to most calls.
    for first, second in (("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "uint8")):
        run(2, f"""
            dtype = (torch.{first}, torch.{second})[rank]
            mine = torch.ones(16).to(dtype)
            try:
                dist.all_gather_into_tensor(torch.ones(32).to(dtype), mine)
            except RuntimeError as error:
                names = str(error)
                assert "{first}" in names and "{second}" in names, names
            else:
                raise AssertionError("the ranks agree")
            os._exit(0)
        """)
