"""All ranks write one file, each its own part: memory that NumPy maps takes the place of MPI's files."""

import shutil
import tempfile

import maypole
import numpy as np

with maypole.Communicator() as comm:
    folder = comm.broadcast_object(tempfile.mkdtemp() if comm.rank == 0 else None)
    path = f"{folder}/rows.npy"
    if comm.rank == 0:
        np.lib.format.open_memmap(path, "w+", "i4", (comm.world, 10)).flush()
    comm.barrier()
    rows = np.lib.format.open_memmap(path, "r+")
    rows[comm.rank] = comm.rank
    rows.flush()
    comm.barrier()
    assert (rows == np.arange(comm.world)[:, None]).all()
    print(f"rank {comm.rank} wrote its row")
    comm.barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
