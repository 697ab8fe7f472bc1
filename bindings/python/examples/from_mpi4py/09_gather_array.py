"""Rank 0 gathers a row from each rank."""

import maypole
import numpy as np

with maypole.Communicator() as comm:
    row = np.full(100, comm.rank, dtype="i")
    matrix = np.empty((comm.world, 100), dtype="i") if comm.rank == 0 else None
    comm.gather(row, root=0, out=matrix)
    if comm.rank == 0:
        assert (matrix == np.arange(comm.world)[:, None]).all()
        print(f"rank 0 has {matrix.shape[0]} rows")
