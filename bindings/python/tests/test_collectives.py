"""Every collective on arrays of NumPy, against NumPy."""

import maypole
import numpy as np
import pytest

WORLD = 3
COUNT = 1000


def numbers(rank, count=COUNT, dtype="int32"):
    return (np.arange(count) * 31 + rank * 7919).astype(dtype)


def on_threads(rank):
    return maypole.run_threads(WORLD, rank)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64"])
def test_every_type_is_summed(dtype):
    def rank(comm):
        mine = np.full(COUNT, comm.rank + 1, dtype=dtype)
        comm.all_reduce(mine)
        assert (mine == 6).all() and mine.dtype == dtype

    on_threads(rank)


@pytest.mark.parametrize("op", ["sum", "product", "min", "max", "avg", "and", "or", "xor"])
def test_every_operation(op):
    combine = {
        "sum": np.sum, "product": np.prod, "min": np.min, "max": np.max,
        "avg": lambda all, axis: np.sum(all, axis=axis) // WORLD,
        "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
    }[op]
    expected = combine(np.stack([numbers(rank, 50, "int64") for rank in range(WORLD)]), axis=0)

    def rank(comm):
        mine = numbers(comm.rank, 50, "int64")
        out = np.zeros_like(mine)
        comm.all_reduce(mine, op, out=out)
        assert (out == expected).all() and (mine == numbers(comm.rank, 50, "int64")).all()

    on_threads(rank)


def test_reductions_to_one_rank_to_blocks_and_to_prefixes():
    total = sum(numbers(rank) for rank in range(WORLD))

    def rank(comm):
        mine = numbers(comm.rank)
        out = np.zeros(COUNT, "int32") if comm.rank == 1 else None
        comm.reduce(mine, root=1, out=out)
        if comm.rank == 1:
            assert (out == total).all()
        prefix = np.zeros_like(mine)
        comm.scan(mine, out=prefix)
        assert (prefix == sum(numbers(before) for before in range(comm.rank + 1))).all()
        before = mine.copy()
        comm.exclusive_scan(before)
        expected = sum(numbers(before) for before in range(comm.rank)) if comm.rank else mine
        assert (before == expected).all()
        whole = numbers(comm.rank, WORLD * COUNT)
        block = np.zeros(COUNT, "int32")
        comm.reduce_scatter(whole, out=block)
        all_of = sum(numbers(rank, WORLD * COUNT) for rank in range(WORLD))
        assert (block == all_of[comm.rank * COUNT:][:COUNT]).all()
        comm.reduce_scatter(whole)
        assert (whole[comm.rank * COUNT:][:COUNT] == block).all()

    on_threads(rank)


def test_moves():
    everything = np.concatenate([numbers(rank) for rank in range(WORLD)])

    def rank(comm):
        mine = numbers(comm.rank)
        got = mine.copy()
        comm.broadcast(got, root=2)
        assert (got == numbers(2)).all()
        whole = np.zeros(WORLD * COUNT, "int32")
        comm.all_gather(mine, out=whole)
        assert (whole == everything).all()
        again = np.zeros_like(whole)
        again[comm.rank * COUNT:][:COUNT] = mine
        comm.all_gather(again)
        assert (again == everything).all()
        out = np.zeros_like(whole) if comm.rank == 0 else None
        comm.gather(mine, out=out)
        assert comm.rank != 0 or (out == everything).all()
        block = np.zeros_like(mine)
        comm.scatter(everything if comm.rank == 0 else None, out=block)
        assert (block == mine).all()
        sent = np.repeat(np.arange(WORLD, dtype="int32"), 4) + 10 * comm.rank
        received = np.zeros_like(sent)
        comm.all_to_all(sent, out=received)
        assert (received == np.repeat(10 * np.arange(WORLD), 4) + comm.rank).all()

    on_threads(rank)


def test_blocks_of_different_lengths():
    counts = [2, 0, 3]

    def rank(comm):
        mine = np.full(counts[comm.rank], comm.rank, "int16")
        out = np.zeros(5, "int16")
        comm.all_gather(mine, out=out, counts=counts)
        assert out.tolist() == [0, 0, 2, 2, 2]
        # A rank that sends nothing may pass a place within the output.
        again = np.zeros(5, "int16")
        nothing = memoryview(again)[1:1]  # An empty slice of NumPy begins at the start.
        comm.all_gather(nothing if comm.rank == 1 else mine, out=again, counts=counts)
        assert again.tolist() == [0, 0, 2, 2, 2]
        part = np.zeros(counts[comm.rank], "int16")
        comm.reduce_scatter(np.arange(5, dtype="int16"), out=part, counts=counts)
        assert part.tolist() == [[0, 3], [], [6, 9, 12]][comm.rank]
        sends = [1, 2, 3]
        out = np.zeros(WORLD * (comm.rank + 1), "int16")
        comm.all_to_all(
            np.full(6, comm.rank, "int16"), out=out, counts=sends, receive_counts=[comm.rank + 1] * WORLD
        )
        assert out.tolist() == np.repeat(np.arange(WORLD), comm.rank + 1).tolist()

    on_threads(rank)


def test_messages_and_objects():
    def rank(comm):
        if comm.rank == 0:
            comm.send(np.array([2.5]), 1, tag=4)
        elif comm.rank == 1:
            got = np.zeros(3)
            assert comm.recv(got, tag=4) == (0, 1) and got[0] == 2.5
        value = comm.broadcast_object({"rate": 0.5} if comm.rank == 2 else None, root=2)
        assert value == {"rate": 0.5}
        assert comm.gather_object(("rank", comm.rank)) == [("rank", rank) for rank in range(WORLD)]

    on_threads(rank)


def test_requests():
    def rank(comm):
        arrays = [np.full(50_000, comm.rank + at, "float32") for at in range(4)]
        requests = [comm.start("all_reduce", array) for array in arrays]
        for at, (request, array) in enumerate(zip(requests, arrays)):
            request.wait()
            assert request.test() and (array == 3 * at + 3).all()
            # A second wait returns the same.
            request.wait()

    on_threads(rank)


def test_groups_and_registered_memory():
    def rank(comm):
        group = comm.split(None if comm.rank == 1 else 0, -comm.rank)
        if comm.rank == 1:
            assert group is None
        else:
            assert (group.world, group.rank) == (2, 0 if comm.rank == 2 else 1)
            assert isinstance(group, maypole.Communicator)
            group.close()
        memory = comm.alloc(1 << 20)
        assert memory.is_registered and len(memory) == 1 << 20
        array = np.frombuffer(memory, "float32")
        array[:] = comm.rank
        del memory
        comm.all_reduce(array)
        assert (array == 3).all()
        assert "all-reduce" in comm.explain("all_reduce", 1 << 20) or "ring" in comm.explain("all_reduce", 1 << 20)
        comm.set_timeout(30)
        comm.set_deterministic()
        comm.duplicate().close()

    on_threads(rank)


def test_any_object_with_the_buffer_protocol():
    def rank(comm):
        data = bytearray([comm.rank, 1])
        comm.all_reduce(data)
        assert data == bytearray([3, 3])
        view = memoryview(bytearray(8)).cast("d")
        view[0] = comm.rank
        comm.all_reduce(view, "max")
        assert view[0] == 2.0
        truth = np.array([comm.rank == 1, True])
        comm.all_reduce(truth, "or")
        assert truth.all() and truth.dtype == bool

    on_threads(rank)
