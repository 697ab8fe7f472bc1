"""Every rank gets the array of rank 0, in an array of its own."""

import maypole
import numpy as np

with maypole.Communicator() as comm:
    data = np.arange(100, dtype="i") if comm.rank == 0 else np.empty(100, dtype="i")
    comm.broadcast(data, root=0)
    assert (data == np.arange(100)).all()
    print(f"rank {comm.rank} has {data[-1]}")
