"""Rank 0 gives each rank a row of its matrix."""

import maypole
import numpy as np

with maypole.Communicator() as comm:
    matrix = None
    if comm.rank == 0:
        matrix = np.repeat(np.arange(comm.world, dtype="i"), 100).reshape(comm.world, 100)
    row = np.empty(100, dtype="i")
    comm.scatter(matrix, root=0, out=row)
    assert (row == comm.rank).all()
    print(f"rank {comm.rank} has a row of {row[0]}")
