"""Every rank gets the objects of all ranks, not rank 0 alone."""

import maypole

with maypole.Communicator() as comm:
    values = comm.gather_object((comm.rank + 1) ** 2)
    assert values == [(rank + 1) ** 2 for rank in range(comm.world)]
    if comm.rank == 0:
        print(f"rank 0 gathered {values}")
