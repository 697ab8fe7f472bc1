"""A search over all ranks: each has a part of the points, and all learn which one is nearest to each query.

python -m maypole run -n 4 python argmin.py
"""

import maypole
import numpy as np

POINTS = 1000  # of one rank
QUERIES = np.array([0.25, 0.5, 0.875])
NONE = np.iinfo(np.int64).max


def nearest(points):
    """For each query: the distance of the nearest of these points, and its index."""
    # Points between 0 and 1. Consecutive ones are far apart.
    distances = np.abs(points[:, None] * 0.6180339887498949 % 1.0 - QUERIES)
    return distances.min(0), points[distances.argmin(0)]


with maypole.Communicator() as comm:
    distance, index = nearest(np.arange(POINTS) + comm.rank * POINTS)

    # The least distance first. Then the ranks that have it name their point, and the lowest index counts.
    least = np.empty_like(distance)
    comm.all_reduce(distance, "min", out=least)
    best = np.where(distance == least, index, NONE)
    comm.all_reduce(best, "min")

    expected = nearest(np.arange(comm.world * POINTS))
    assert (least == expected[0]).all() and (best == expected[1]).all()
    print(f"rank {comm.rank}: the nearest points are {best.tolist()}")
