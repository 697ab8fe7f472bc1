"""Numbers of Python and NumPy instead of arrays, and names of operations."""

import maypole
import numpy as np
import pytest
from ranks import run

WORLD = 3


def on_threads(rank):
    return maypole.run_threads(WORLD, rank)


@pytest.mark.parametrize("of", [int, float, np.float32, np.int16])
def test_numbers_are_combined(of):
    def rank(comm):
        mine = of(comm.rank + 1)
        total = comm.all_reduce(mine)
        assert total == 6 and type(total) is (int if of in (int, np.int16) else float)
        assert comm.all_reduce(mine, "max") == 3 and comm.all_reduce(mine, "prod") == 6
        assert comm.reduce(mine, root=1) == (6 if comm.rank == 1 else None)
        assert comm.scan(mine) == sum(range(comm.rank + 2))
        before = comm.exclusive_scan(mine)
        assert before == (sum(range(comm.rank + 1)) if comm.rank else mine)

    on_threads(rank)


def test_the_mean_of_ints_is_a_float():
    def rank(comm):
        assert comm.all_reduce(comm.rank // 2, "avg") == pytest.approx(1 / 3)
        array = np.full(2, float(comm.rank))
        assert comm.all_reduce(array, "mean") is None and (array == 1).all()

    on_threads(rank)


def test_numbers_that_cannot_be_combined_are_refused():
    def rank(comm):
        for value, why in ((1 << 63, "64 bits"), (True, "bool and no array"), ("3", "str and no array"), (1j, "complex and no array")):
            with pytest.raises(maypole.InvalidArgument, match=why):
                comm.all_reduce(value)
        with pytest.raises(maypole.InvalidArgument, match="xor"):
            comm.all_reduce(3.0, "xor")
        with pytest.raises(maypole.InvalidType, match="broadcast_object"):
            comm.broadcast(3.0)
        comm.barrier()

    on_threads(rank)


def test_ranks_that_mix_ints_and_floats_do_not_match():
    def rank(comm):
        with pytest.raises(maypole.Mismatch, match="i64|f64"):
            comm.all_reduce(1 if comm.rank else 1.0)

    on_threads(rank)


def test_numbers_are_combined_between_processes():
    assert run(3, "import maypole; print(maypole.Communicator().all_reduce(0.5))").split() == ["1.5"] * 3
