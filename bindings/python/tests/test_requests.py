"""The failure of a request that was dropped is raised by the next call, or by close()."""

import maypole
import numpy as np
import pytest

DROPPED = {
    "a root that there is not": lambda comm: comm.start("broadcast", np.zeros(4), root=9),
    "counts of a wrong length": lambda comm: comm.start("reduce_scatter", np.zeros(5), out=np.zeros(2)),
}
RAISING = {
    "barrier": lambda comm: comm.barrier(),
    "all_reduce": lambda comm: comm.all_reduce(np.zeros(4)),
    "close": lambda comm: comm.close(),
}


@pytest.mark.parametrize("raising", RAISING)
@pytest.mark.parametrize("dropped", DROPPED)
def test_the_failure_of_a_dropped_request_is_raised(dropped, raising):
    def rank(comm):
        comm.set_timeout(20)
        request = DROPPED[dropped](comm)
        del request
        with pytest.raises(maypole.MaypoleError, match="root 9|elements") as caught:
            RAISING[raising](comm)
        assert caught.value.kind == "invalid"
        if raising != "close":
            # It was raised once, and no rank has sent anything.
            comm.barrier()

    maypole.run_threads(2, rank)


def test_a_failure_that_was_raised_is_not_raised_again():
    def rank(comm):
        request = comm.start("broadcast", np.zeros(4), root=9)
        with pytest.raises(maypole.MaypoleError, match="root 9"):
            request.wait()
        comm.barrier()
        comm.close()

    maypole.run_threads(2, rank)


def test_the_mismatch_of_a_dropped_request_is_raised_by_close():
    def rank(comm):
        comm.set_timeout(20)
        comm.start("all_reduce", np.zeros(4 + comm.rank))
        with pytest.raises(maypole.MaypoleError) as caught:
            comm.close()
        assert caught.value.kind in ("mismatch", "aborted")

    maypole.run_threads(2, rank)
