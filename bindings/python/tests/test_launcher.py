"""The launcher names the rank that failed first, and ends with its code, though others end before it."""

import pytest
from ranks import run

OTHERS = """
    import sys, time
    import maypole
    import numpy as np

    comm = maypole.Communicator()
    comm.barrier()
    if comm.rank == 2:
        {fails}
    comm.all_reduce(np.ones(4))
"""


@pytest.mark.parametrize(
    "fails, code, words",
    [
        ("del comm; time.sleep(0.5); sys.exit(7)", 7, "rank 2 ended with code 7"),
        ("raise RuntimeError('on purpose')", 1, "rank 2 ended with code 1"),
        ("del comm; time.sleep(0.5); sys.exit(0)", 1, "ended with code 1, because rank 2 did not do its part"),
    ],
)
def test_the_rank_that_all_name_is_named(fails, code, words):
    assert words in run(4, OTHERS.format(fails=fails), code)
