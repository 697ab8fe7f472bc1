"""Arrays of every kind, and objects that cannot be pickled."""

import maypole
import ml_dtypes
import numpy as np
import pytest
from ranks import run


def test_kinds_of_arrays_are_summed_or_refused_with_the_reason():
    fixed = np.ones(2)
    fixed.flags.writeable = False
    kinds = [
        (lambda: np.array(3.0), 6.0, None),
        (lambda: np.ma.masked_array([1.0, 2.0], [False, False]), None, "mask"),
        (lambda: np.ones(2, ml_dtypes.bfloat16), [2.0, 2.0], None),
        (lambda: np.ones(2, ml_dtypes.float8_e4m3fn), None, "elements of float8_e4m3fn: known are"),
        (lambda: np.ones(3, ">f8"), None, "byte order"),
        (lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)), None, r"contiguous: .*data\.T"),
        (lambda: np.arange(4.0)[::-1], None, "contiguous"),
        (lambda: np.ones(2, "complex64"), None, "complex"),
        (lambda: np.array(["2020-01-01"], "M8[s]"), None, r"elements of datetime64\[s\]: known are"),
        (lambda: fixed, None, "read-only"),
        (lambda: np.ones(2, np.longdouble), None, "elements of g: known"),
        (lambda: np.zeros(2, [("a", "f4")]), None, "elements of T.*: known"),
        (lambda: [1.0, 2.0], None, "array"),
    ]

    def rank(comm):
        for make, want, why in kinds:
            array = make()
            if why is None:
                comm.all_reduce(array)
                assert np.asarray(array).tolist() == want
            else:
                with pytest.raises((maypole.MaypoleError, TypeError), match=why):
                    comm.all_reduce(array)
        with pytest.raises(maypole.MaypoleError, match="byte order"):
            comm.all_reduce(np.ones(3, ">f8"), out=np.empty(3))
        comm.barrier()

    maypole.run_threads(2, rank)


def test_an_object_that_cannot_be_pickled_harms_its_own_rank_alone():
    said = run(2, """
        import maypole, pickle
        comm = maypole.Communicator()
        comm.set_timeout(20)
        if comm.rank == 0:
            try:
                comm.gather_object(lambda: 1)
            except (pickle.PicklingError, AttributeError):
                print("refused")
        # Nothing was sent, so the ranks are in step.
        print(comm.gather_object(comm.rank))
    """)
    assert "refused" in said and said.count("[0, 1]") == 2
