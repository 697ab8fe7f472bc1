"""Batches of calls: an exception ends them, a wait in one begins it, and calls of other threads are not part of it."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run

# What leaves a batch by an exception, on every rank.
LEAVINGS = {
    "a message with a wrong tag": "dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(2), 1 - rank, tag=-1)])",
    "a receive after a send": """dist.batch_isend_irecv([
        dist.P2POp(dist.isend, torch.ones(2), 1 - rank, tag=7), dist.P2POp(dist.irecv, torch.ones(2), 1 - rank, tag=-1)
    ])""",
    "a call that is refused at the end": """
with manager(device=cpu):
    dist.all_reduce(torch.ones(4).to(torch.float8_e4m3fn))""",
    "a call that is refused at once": """
with manager(device=cpu):
    dist.broadcast(torch.ones(4).to_sparse(), 0)""",
    "an error of the program": """
with manager(device=cpu):
    dist.all_reduce(torch.ones(4))
    works.append(dist.broadcast(torch.ones(4), 0, async_op=True))
    raise KeyError("of the program")""",
    "an error of the program without a device": """
with manager():
    dist.all_reduce(torch.ones(4))
    raise KeyError("of the program")""",
    "a batch in a batch": """
with manager(device=cpu):
    works.append(dist.broadcast(torch.ones(4), 0, async_op=True))
    with manager(device=cpu):
        dist.all_reduce(torch.ones(4))""",
    "the same tensor twice": """
x = torch.ones(4)
with manager(device=cpu):
    dist.all_reduce(x)
    dist.all_reduce(x)""",
    "overlapping tensors in calls that begin together": """
x = torch.ones(4)
with manager(device=cpu):
    works.append(dist.broadcast(x, 0, async_op=True))
    works.append(dist.broadcast(x[1:], 0, async_op=True))""",
}


@pytest.mark.parametrize("name", LEAVINGS)
def test_after_an_exception_in_a_batch_calls_are_made(name):
    run(2, """
        from torch.distributed.distributed_c10d import _coalescing_manager as manager
        cpu, works = torch.device("cpu"), []
        try:
            exec(LEAVING)
            raise SystemExit("the batch did not raise")
        except (RuntimeError, KeyError, OverflowError) as error:
            print(type(error), error)
        for work in works:
            try:
                work.wait()
                raise SystemExit("a call that was never made has ended well")
            except RuntimeError as error:
                print(error)
        x = torch.full((4,), rank + 1.0)
        dist.all_reduce(x)
        assert (x == 3).all(), x
        whole = torch.empty(2)
        dist.all_gather_into_tensor(whole, torch.full((1,), rank + 1.0))
        assert whole.tolist() == [1, 2], whole
        dist.broadcast(x, 1)
        with manager(device=cpu):
            y = torch.ones(3)
            dist.all_reduce(y)
        assert (y == 2).all(), y
        if rank == 1:
            time.sleep(0.5)
        since = time.monotonic()
        dist.barrier()
        assert rank == 1 or time.monotonic() - since > 0.2, "the barrier waits for nobody"
    """.replace("LEAVING", repr(LEAVINGS[name])))


def test_a_wait_in_a_batch_begins_it():
    run(2, """
        from torch.distributed.distributed_c10d import _coalescing_manager as manager
        with manager(device=torch.device("cpu"), async_ops=True) as made:
            x, y, z = torch.full((4,), float(rank)), torch.full((4,), float(rank)), torch.full((4,), float(rank))
            dist.broadcast(x, 1)
            assert (x == 1).all(), x
            first, second = dist.broadcast(y, 1, async_op=True), dist.broadcast(z, 1, async_op=True)
            assert not first.is_completed() and not second.is_completed()
            second.wait()
            assert (y == 1).all() and (z == 1).all()
            last = dist.broadcast(w := torch.full((4,), float(rank)), 1, async_op=True)
        made.works[0].wait()
        last.wait()
        first.wait()
        assert (w == 1).all()
    """)


def test_calls_of_other_threads_are_not_part_of_a_batch():
    run(2, """
        import threading
        group = dist.new_group([0, 1])
        backend = group._get_backend(torch.device("cpu"))
        options = dist.BroadcastOptions()
        options.rootRank = 1
        mine, other = torch.full((4,), float(rank)), torch.full((4,), float(rank))
        backend.start_coalescing()
        pending = backend.broadcast([mine], options)
        thread = threading.Thread(target=lambda: backend.broadcast([other], options).wait())
        thread.start()
        thread.join()
        assert (other == 1).all() and (rank == 1 or (mine == 0).all())
        backend.end_coalescing().wait()
        assert (mine == 1).all() and pending.is_completed()
        # A batch that is open when another begins is an error, and not a batch without its calls.
        backend.start_coalescing()
        pending = backend.broadcast([mine], options)
        for call in (backend.start_coalescing, pending.wait):
            try:
                call()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert "batch" in str(error), error
        backend.broadcast([other], options).wait()
    """)


def test_two_threads_wait_for_one_work():
    run(2, """
        import threading
        x = torch.full((1 << 16,), rank + 1.0)
        if rank == 1:
            time.sleep(0.3)
        work, seen = dist.all_reduce(x, async_op=True), []
        def wait():
            work.wait()
            seen.append(bool((x == 3).all()))
        threads = [threading.Thread(target=wait) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert seen == [True] * 3, seen
    """)
