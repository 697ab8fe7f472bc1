"""A matrix on a mesh of ranks: y = A x, summed along the rows and gathered along the columns.

python -m maypole run -n 4 python mesh.py
"""

import math

import maypole
import numpy as np

BLOCK = 3  # rows and columns of the block of one rank


def product(rows, columns):
    """The product of some rows and columns of A with the same part of x."""
    a = np.add.outer(rows, 2.0 * columns)
    return a @ (columns + 1)


def block(at):
    return np.arange(at * BLOCK, (at + 1) * BLOCK)


with maypole.Communicator() as comm:
    # The mesh is as near to a square as the number of ranks allows.
    height = max(it for it in range(1, math.isqrt(comm.world) + 1) if comm.world % it == 0)
    width = comm.world // height
    row, column = divmod(comm.rank, width)

    # Ranks of one colour are a group, in the order of their keys.
    along_row = comm.split(row, key=column)
    along_column = comm.split(column, key=row)

    # This rank's block gives a part of each sum; a row of ranks has all parts of BLOCK sums.
    y = product(block(row), block(column))
    along_row.all_reduce(y)

    # A column of ranks has all sums.
    whole = np.empty(height * BLOCK)
    along_column.all_gather(y, out=whole)

    assert np.array_equal(whole, product(np.arange(height * BLOCK), np.arange(width * BLOCK)))
    print(f"rank {comm.rank} is at ({row}, {column}) of {height} x {width}, and y is {whole.tolist()}")
