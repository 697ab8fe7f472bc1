"""Maypole beside mpi4py with Open MPI on arrays of NumPy, in alternating rounds of one run.

    mpirun -n 2 python open_mpi.py
    mpirun -n 4 --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 python open_mpi.py
"""

import maypole
import numpy as np
from mpi4py import MPI

from alternate import SIZES, busy, compare, head, options, row


class MpiRanks:
    is_first = MPI.COMM_WORLD.rank == 0

    def barrier(self):
        MPI.COMM_WORLD.Barrier()

    def most(self, number):
        return MPI.COMM_WORLD.allreduce(number, MPI.MAX)


def calls(comm, size):
    """Functions by the name of the call, each as (maypole's, mpi4py's). ``size``: bytes of the longer buffer."""
    mpi = MPI.COMM_WORLD
    count = max(size // 4, comm.world)
    count -= count % comm.world
    # `np.zeros` would give pages that nobody has written. They are one page, which every cache holds.
    whole, other = np.full(count, 0, "float32"), np.full(count, 0, "float32")
    part = np.full(count // comm.world, 0, "float32")
    return {
        "all_reduce": (lambda: comm.all_reduce(whole, out=other), lambda: mpi.Allreduce(whole, other)),
        "all_gather": (lambda: comm.all_gather(part, out=whole), lambda: mpi.Allgather(part, whole)),
        "reduce_scatter": (
            lambda: comm.reduce_scatter(whole, out=part),
            lambda: mpi.Reduce_scatter_block(whole, part),
        ),
        "all_to_all": (lambda: comm.all_to_all(whole, out=other), lambda: mpi.Alltoall(whole, other)),
        "broadcast": (lambda: comm.broadcast(whole), lambda: mpi.Bcast(whole)),
    }


def main():
    arguments = options(__doc__)
    ranks = MpiRanks()
    with maypole.Communicator() as comm, busy(arguments.busy if ranks.is_first else 0):
        if ranks.is_first:
            print(f"{comm.world} ranks, medians of {arguments.rounds} rounds, {MPI.Get_library_version().split(',')[0]}\n")
            head("maypole", "mpi4py")
        for name in calls(comm, 8):
            for size in (size for size in SIZES if size <= arguments.most):
                ours, theirs = calls(comm, size)[name]
                seconds = compare({"maypole": ours, "mpi4py": theirs}, arguments.rounds, ranks)
                if ranks.is_first:
                    row(name, size, seconds["maypole"], seconds["mpi4py"])


if __name__ == "__main__":
    main()
