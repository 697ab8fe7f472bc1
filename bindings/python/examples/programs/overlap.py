"""How much of an all-reduce hides behind computing: each alone, and both at the same time.

python -m maypole run -n 2 python overlap.py

A call over shared memory needs a core, too, so it hides only where there are more cores than ranks. Over a
network its waiting hides in any case.
"""

import os
import time

# NumPy's matrices would take all cores for each rank.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import maypole
import numpy as np

ROUNDS = 30  # the first calls of a length are slower: they try which way through memory is the fastest


def fastest(comm, step):
    """The seconds of the fastest of some rounds, which all ranks begin together."""
    times = []
    for _ in range(ROUNDS):
        comm.barrier()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return min(times)


with maypole.Communicator() as comm:
    x = np.ones(1 << 21, np.float32)
    layer = np.ones((400, 400), np.float32)

    def compute():
        return layer @ layer

    def both():
        request = comm.start("all_reduce", x, "max")
        compute()
        request.wait()

    computing = fastest(comm, compute)
    summing = fastest(comm, lambda: comm.all_reduce(x, "max"))
    together = fastest(comm, both)

    assert (x == 1).all()
    hidden = min(max(computing + summing - together, 0) / summing, 1)
    times = ", ".join(f"{1e3 * it:.1f} ms" for it in (computing, summing, together))
    print(f"computing, all-reduce, both: {times}: {hidden:.0%} hidden")
