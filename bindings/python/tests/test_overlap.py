"""Arrays of one call that share memory: exactly in place is in place, and in any other case the result is that of
arrays apart."""

import maypole
import numpy as np
import pytest

WORLD = 3
# Short messages, and some that go through memory in several parts.
COUNTS = [1, 5, 1 << 14]


def numbers(rank, count):
    return np.arange(count, dtype="int64") * 7 + 1_000_003 * (rank + 1)


# For each call: the elements that a rank reads and writes, in blocks, and how the call is made.
CALLS = {
    "all_reduce": (lambda root: (WORLD, WORLD), lambda comm, data, out, _: comm.all_reduce(data, out=out)),
    "reduce": (lambda root: (WORLD, WORLD if root else 0), lambda comm, data, out, root: comm.reduce(data, root=root, out=out)),
    "scan": (lambda root: (WORLD, WORLD), lambda comm, data, out, _: comm.scan(data, out=out)),
    "all_gather": (lambda root: (1, WORLD), lambda comm, data, out, _: comm.all_gather(data, out=out)),
    "reduce_scatter": (lambda root: (WORLD, 1), lambda comm, data, out, _: comm.reduce_scatter(data, out=out)),
    "all_to_all": (lambda root: (WORLD, WORLD), lambda comm, data, out, _: comm.all_to_all(data, out=out)),
    "gather": (lambda root: (1, WORLD if root else 0), lambda comm, data, out, root: comm.gather(data, root, out=out)),
    "scatter": (lambda root: (WORLD if root else 0, 1), lambda comm, data, out, root: comm.scatter(data, root, out=out)),
    "all_to_all with counts": (
        lambda root: (WORLD, WORLD),
        lambda comm, data, out, _: comm.all_to_all(
            data, out=out, counts=[len(data) // WORLD] * WORLD, receive_counts=[len(out) // WORLD] * WORLD
        ),
    ),
    "all_gather with counts": (
        lambda root: (1, WORLD),
        lambda comm, data, out, _: comm.all_gather(data, out=out, counts=[len(data)] * WORLD),
    ),
    "gather with counts": (
        lambda root: (1, WORLD if root else 0),
        lambda comm, data, out, root: comm.gather(data, root, out=out, counts=[len(data)] * WORLD),
    ),
    "started all_to_all": (
        lambda root: (WORLD, WORLD), lambda comm, data, out, _: comm.start("all_to_all", data, out=out).wait()
    ),
    "started all_gather": (
        lambda root: (1, WORLD), lambda comm, data, out, _: comm.start("all_gather", data, out=out).wait()
    ),
    "started reduce_scatter": (
        lambda root: (WORLD, 1), lambda comm, data, out, _: comm.start("reduce_scatter", data, out=out).wait()
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_overlapping_arrays_give_what_arrays_apart_give(name):
    blocks, call = CALLS[name]

    def rank(comm):
        comm.set_timeout(30)
        for root in range(WORLD):
            for count in COUNTS:
                read, written = (each * count for each in blocks(comm.rank == root))
                expected = np.zeros(written, "int64")
                data = numbers(comm.rank, read)
                call(comm, data if read else None, expected if written else None, root)
                longer = max(read, written)
                for offset in (0, comm.rank * count, (WORLD - 1) * count, count // 2, 1):
                    # The shorter one begins `offset` elements behind the longer one, or the other way round.
                    for data_first in (True, False):
                        memory = np.zeros(longer + offset + min(read, written), "int64")
                        data = memory[0 if data_first else offset :][:read]
                        out = memory[offset if data_first else 0 :][:written]
                        data[:] = numbers(comm.rank, read)
                        call(comm, data if read else None, out if written else None, root)
                        assert np.array_equal(out, expected), (name, root, count, offset, data_first)

    maypole.run_threads(WORLD, rank)


def test_an_all_to_all_with_counts_in_place_of_unequal_blocks():
    def rank(comm):
        sent, received = [1, 2, 3], [comm.rank + 1] * WORLD
        for count in COUNTS:
            data = numbers(comm.rank, 6 * count)
            apart = np.zeros(sum(received) * count, "int64")
            counts = dict(counts=[each * count for each in sent], receive_counts=[each * count for each in received])
            comm.all_to_all(data, out=apart, **counts)
            memory = np.zeros(9 * count, "int64")
            memory[: 6 * count] = data
            comm.all_to_all(memory[: 6 * count], out=memory[: sum(received) * count], **counts)
            assert np.array_equal(memory[: sum(received) * count], apart)

    maypole.run_threads(WORLD, rank)


def refused(comm, call, why):
    with pytest.raises(maypole.MaypoleError, match=why) as caught:
        call()
    assert caught.value.kind == "invalid"


def test_the_root_s_arrays_have_one_type_and_the_others_go_on():
    def rank(comm):
        comm.set_timeout(30)
        is_root = comm.rank == 1
        for given, wanted in (("float32", "int32"), ("float32", "float64"), ("int64", "uint64"), ("float64", "int8")):
            for counts in (None, [4] * WORLD):
                mine, whole = np.ones(4, given), np.arange(4 * WORLD).astype(given)
                out = np.full(4 * WORLD, 77, wanted)
                if is_root:
                    refused(comm, lambda: comm.gather(mine, 1, out=out, counts=counts), "data has elements of .*out of")
                    assert (out == 77).all()
                    refused(comm, lambda: comm.scatter(whole, 1, out=out[:4], counts=counts), "data has elements of")
                    assert (out == 77).all()
                else:
                    comm.gather(mine, 1, counts=counts)
                    part = np.zeros(4, given)
                    comm.scatter(None, 1, out=part, counts=counts)
                    assert np.array_equal(part, whole[4 * comm.rank :][:4])
            if is_root:
                refused(comm, lambda: comm.reduce(mine, root=1, out=out[:4]), "data has elements of")
            else:
                comm.reduce(mine, root=1)
            refused(comm, lambda: comm.all_gather(mine, out=out), "data has elements of")
            refused(comm, lambda: comm.start("all_gather", mine, out=out), "data has elements of")
        comm.barrier()

    maypole.run_threads(WORLD, rank)
