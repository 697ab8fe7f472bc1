"""Rank 0 gives each rank an object."""

import maypole

with maypole.Communicator() as comm:
    values = [(rank + 1) ** 2 for rank in range(comm.world)] if comm.rank == 0 else None
    value = comm.scatter_object(values, root=0)
    assert value == (comm.rank + 1) ** 2
    print(f"rank {comm.rank} got {value}")
