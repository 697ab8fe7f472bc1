"""A matrix times a vector: each rank has some rows of the matrix, and the same part of the vector."""

import maypole
import numpy as np


def product(comm, rows, part):
    vector = np.empty(rows.shape[1])
    comm.all_gather(part, out=vector)
    return rows @ vector


with maypole.Communicator() as comm:
    size = 5 * comm.world
    matrix, vector = np.arange(size * size, dtype=float).reshape(size, size), np.linspace(0, 1, size)
    here = slice(5 * comm.rank, 5 * comm.rank + 5)
    result = product(comm, matrix[here], vector[here])
    assert np.allclose(result, (matrix @ vector)[here])
    print(f"rank {comm.rank} has {len(result)} of {size} elements")
