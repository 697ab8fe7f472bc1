"""The backend of PyTorch. Ranks are processes, as PyTorch starts them; nobody imports maypole."""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

LIMIT = 180
HEAD = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import torch.nn as nn
from datetime import timedelta

rank, world, meeting = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MEETING"]
dist.init_process_group(
    "maypole", init_method="file://" + meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60)
)

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

def rows(step, of=None):
    generator = torch.Generator().manual_seed(100 * step + (rank if of is None else of))
    return torch.randn(4, 8, generator=generator)
"""


# Ranks are forks of a server that has imported PyTorch: each import takes seconds of processor time.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(
    ["torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor", "torch.nn.parallel", "test_torch"]
)


def run(ranks, program, codes=None, start=None):
    """Runs `program` on `ranks` processes; returns what each prints. Codes are those expected, by rank."""
    text = HEAD + textwrap.dedent(program) + "\ndist.destroy_process_group()\n"
    with tempfile.TemporaryDirectory() as folder:
        shared = {**os.environ, "WORLD_SIZE": str(ranks), "MEETING": f"{folder}/meeting", "OMP_NUM_THREADS": "1"}
        outputs = [f"{folder}/{rank}" for rank in range(ranks)]
        end_of = [(start or fork)(text, {**shared, "RANK": str(rank)}, outputs[rank]) for rank in range(ranks)]
        ended = [end() for end in end_of]
        said = [[pathlib.Path(output + kind).read_text() for kind in (".out", ".err")] for output in outputs]
    expected = codes or [0] * ranks
    for rank, (code, (out, err)) in enumerate(zip(ended, said)):
        assert code == expected[rank], (rank, code, out, err)
    return [out for out, _ in said]


def fork(text, env, output):
    """Starts a rank. The function that it returns waits for its end and returns the code."""
    process = forks.Process(target=rank_of_fork, args=(text, env, output))
    process.start()

    def end():
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"a rank runs for more than {LIMIT} s")
        return process.exitcode

    return end


def rank_of_fork(text, env, output):
    os.environ.clear()
    os.environ.update(env)
    for kind, number in ((".out", 1), (".err", 2)):
        file = os.open(output + kind, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    exec(compile(text, "program", "exec"), {"__name__": "__main__"})


def interpreter(text, env, output):
    """Starts a rank as an interpreter of its own; see `fork`."""
    with open(output + ".out", "w") as out, open(output + ".err", "w") as err:
        process = subprocess.Popen([sys.executable, "-c", text], env=env, stdout=out, stderr=err)
    return lambda: process.wait(LIMIT)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_and_type(ranks):
    run(ranks, """
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8):
            mine = torch.arange(5).to(dtype) + rank
            total = sum(torch.arange(5).to(dtype) + other for other in range(world))
            summed = mine.clone()
            dist.all_reduce(summed)
            assert torch.equal(summed, total), (dtype, summed, total)
            gathered = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(gathered, mine)
            assert all(torch.equal(it, torch.arange(5).to(dtype) + other) for other, it in enumerate(gathered))
        for dtype in (torch.bool, torch.complex64, torch.float8_e4m3fn):
            data = torch.ones(5).to(dtype) if rank == 1 else torch.zeros(5).to(dtype)
            dist.broadcast(data, 1)
            assert torch.equal(data.to(torch.complex64), torch.ones(5, dtype=torch.complex64))
        whole = torch.empty(4 * world)
        dist.all_gather_into_tensor(whole, torch.full((4,), float(rank)))
        assert whole.tolist() == [float(at // 4) for at in range(4 * world)]
        part = torch.empty(4)
        dist.reduce_scatter_tensor(part, whole.clone())
        assert torch.equal(part, world * torch.full((4,), float(rank)))
        parts = [torch.full((3,), float(10 * rank + to)) for to in range(world)]
        got = torch.empty(3)
        dist.reduce_scatter(got, parts)
        assert torch.equal(got, sum(torch.full((3,), float(10 * other + rank)) for other in range(world)))
        received = torch.empty(3 * world)
        dist.all_to_all_single(received, torch.cat(parts))
        assert torch.equal(received, torch.cat([torch.full((3,), float(10 * other + rank)) for other in range(world)]))
        splits = [to + 1 for to in range(world)]
        uneven = torch.empty(world * (rank + 1))
        dist.all_to_all_single(uneven, torch.full((sum(splits),), float(rank)), [rank + 1] * world, splits)
        assert uneven.tolist() == [float(at // (rank + 1)) for at in range(world * (rank + 1))]
        outs = [torch.empty(2) for _ in range(world)]
        dist.all_to_all(outs, [torch.full((2,), float(rank)) for _ in range(world)])
        assert [out[0].item() for out in outs] == list(map(float, range(world)))
        dist.reduce(got, 0)
        lists = [torch.empty(3) for _ in range(world)] if rank == 0 else None
        dist.gather(torch.full((3,), float(rank)), lists, 0)
        assert rank != 0 or [it[0].item() for it in lists] == list(map(float, range(world)))
        dist.scatter(got, parts if rank == 1 else None, 1)
        assert torch.equal(got, torch.full((3,), float(10 + rank)))
        column = torch.ones(4, 3)[:, 1]
        assert not column.is_contiguous()
        dist.all_reduce(column)
        assert torch.equal(column, world * torch.ones(4))
        sparse = torch.sparse_coo_tensor([[rank, world]], [1.0, 2.0], (world + 1,))
        dist.all_reduce(sparse)
        assert sparse.to_dense().tolist() == [1.0] * world + [2.0 * world]
        objects = [None] * world
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": other} for other in range(world)]
        dist.barrier()
    """)


def test_results_that_cannot_be_stored_are_an_error():
    run(2, """
        # Three elements do not fit where two come.
        try:
            work = dist.all_gather([torch.empty(3), torch.empty(3)], torch.ones(2), async_op=True)
            work.wait()
            raise SystemExit("nothing was said")
        except RuntimeError as error:
            print(error, flush=True)
        dist.barrier()
    """)


def test_ddp_trains_as_one_process_does():
    run(2, """
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(network())
        alone = network()
        for each in (model, alone):
            optimizer = torch.optim.SGD(each.parameters(), 0.1)
            for step in range(5):
                batch = rows(step) if each is model else torch.cat([rows(step, other) for other in range(world)])
                each(batch).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        for mine, theirs in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    """)


def test_bits_do_not_depend_on_the_size_of_buckets(monkeypatch):
    monkeypatch.setenv("MAYPOLE_DETERMINISTIC", "1")
    run(3, """
        from torch.nn.parallel import DistributedDataParallel
        def train(megabytes):
            model = DistributedDataParallel(network(), bucket_cap_mb=megabytes)
            for step in range(3):
                model(rows(step)).square().mean().backward()
            return torch.cat([it.grad.flatten() for it in model.parameters()])
        few, many = train(25), train(0.001)
        assert torch.equal(few, many), (few - many).abs().max()
    """)


def test_fsdp_and_registered_memory():
    run(2, """
        from torch.distributed.fsdp import fully_shard
        model, alone = network(), network()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
        for each in (model, alone):
            optimizer = torch.optim.AdamW(each.parameters(), 0.01)
            for step in range(4):
                batch = rows(step) if each is model else torch.cat([rows(step, other) for other in range(world)])
                each(batch).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        for mine, theirs in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(mine.full_tensor(), theirs, rtol=1e-4, atol=1e-6)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        memory = backend.allocate_tensor(300_000, dtype=torch.bfloat16)
        memory.fill_(1)
        dist.all_reduce(memory)
        assert torch.equal(memory, torch.full((300_000,), float(world), dtype=torch.bfloat16))
    """)


def test_coalesced_calls_and_groups():
    run(3, """
        tensors = [torch.ones(3) * (at + 1) for at in range(4)]
        with dist._coalescing_manager(device=torch.device("cpu")):
            for tensor in tensors:
                dist.all_reduce(tensor)
        assert [tensor[0].item() for tensor in tensors] == [float(world * (at + 1)) for at in range(4)]
        outer = dist.new_group([0, 2])
        if rank != 1:
            tensor = torch.ones(2) * (rank + 1)
            dist.all_reduce(tensor, group=outer)
            assert tensor[0] == 4
        dist.barrier()
    """)


def test_callbacks_make_calls_and_wait_for_them():
    run(3, """
        def summed(future):
            # A call that returns when it is over, one that is waited for by its work, one by its future.
            tensor = future.value()[0]
            dist.all_reduce(tensor)
            dist.all_reduce(tensor, async_op=True).wait()
            return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

        def twice(future):
            # A callback in a callback.
            work = dist.all_reduce(future.value()[0], async_op=True)
            return work.get_future().then(summed).wait()

        for callback, calls in [(summed, 4), (twice, 5)]:
            for at in range(1, 20):
                result = dist.all_reduce(torch.ones(at), async_op=True).get_future().then(callback).wait()
                assert torch.equal(result, torch.full((at,), float(world**calls)))
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            tensor = torch.ones(2)
            dist.all_reduce(tensor)
        manager.works[0].get_future().then(summed).wait()
        assert tensor[0] == world**4

        def fails(future):
            raise ValueError("what the callback says")

        try:
            dist.all_reduce(torch.ones(1), async_op=True).get_future().then(fails).wait()
            raise SystemExit("nothing was said")
        except RuntimeError as error:
            assert "what the callback says" in str(error), error
        dist.barrier()
    """)


def test_powersgd_waits_in_callbacks():
    run(2, """
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

        model = nn.parallel.DistributedDataParallel(network())
        state = powersgd.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1)
        model.register_comm_hook(state, powersgd.powerSGD_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for step in range(12):
            loss = model(rows(0)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0], losses
        for parameter in model.parameters():
            other = parameter.detach().clone()
            dist.broadcast(other, 0)
            assert torch.equal(other, parameter.detach())
    """)


def test_a_killed_rank_is_an_exception_that_names_it():
    said = run(3, """
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        since = time.monotonic()
        try:
            for _ in range(1000):
                dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            print("culprit", error.culprit, "soon", time.monotonic() - since < 2, error, flush=True)
        os._exit(0)
    """, codes=[0, -9, 0])
    assert all("culprit 1 soon True" in said[rank] for rank in (0, 2)), said


def test_a_rank_that_does_not_come_is_named_by_the_monitored_barrier():
    said = run(2, """
        if rank == 0:
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=1))
            except RuntimeError as error:
                print(error)
        dist.barrier()
    """)
    assert "Rank 1 failed to pass monitoredBarrier in 1000 ms" in said[0]


def test_the_interpreter_ends_with_work_in_flight():
    said = run(2, """
        if rank == 0:
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            print("leaving", flush=True)
            sys.exit(0)
        try:
            dist.barrier()
        except RuntimeError as error:
            print("told", error, flush=True)
        os._exit(0)
    """, start=interpreter)
    assert "leaving" in said[0] and "told" in said[1], said
