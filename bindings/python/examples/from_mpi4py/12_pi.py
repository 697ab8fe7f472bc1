"""Pi by the midpoint rule: rank 0 says how finely, every rank sums some of the terms, rank 0 has the sum."""

import math

import maypole

with maypole.Communicator() as comm:
    steps = comm.broadcast_object(100_000 if comm.rank == 0 else None)
    midpoints = ((step + 0.5) / steps for step in range(comm.rank, steps, comm.world))
    pi = comm.reduce(sum(4 / (1 + x * x) for x in midpoints) / steps, root=0)
    if comm.rank == 0:
        assert abs(pi - math.pi) < 1e-9
        print(f"pi is about {pi:.9f}")
