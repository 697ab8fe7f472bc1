"""Rank 0 sends two arrays of NumPy to rank 1. The types travel with the arrays and are compared."""

import maypole
import numpy as np

with maypole.Communicator() as comm:
    if comm.rank == 0:
        comm.send(np.arange(1000, dtype="i"), 1, tag=77)
        comm.send(np.arange(100, dtype=np.complex128), 1, tag=13)
    elif comm.rank == 1:
        numbers, waves = np.empty(1000, dtype="i"), np.empty(100, dtype=np.complex128)
        comm.recv(numbers, 0, tag=77)
        comm.recv(waves, 0, tag=13)
        assert (numbers == np.arange(1000)).all() and (waves == np.arange(100)).all()
        print("rank 1 received both")
