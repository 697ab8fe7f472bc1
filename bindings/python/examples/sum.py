"""Every rank adds its numbers to those of the others: python -m maypole run -n 4 sum.py"""

import maypole
import numpy as np

with maypole.Communicator() as comm:
    numbers = np.full(5, comm.rank + 1, dtype=np.float32)
    comm.all_reduce(numbers)
    settings = comm.broadcast_object({"rate": 0.1} if comm.rank == 0 else None)
    print(f"rank {comm.rank} of {comm.world}: {numbers[0]:g}, {settings}")
