"""Maypole: collective communication for CPUs.

Every rank runs the same program; ``python -m maypole run -n 4 program.py`` starts four of them::

    import maypole, numpy as np

    with maypole.Communicator() as comm:
        gradients = np.full(1_000_000, comm.rank, dtype=np.float32)
        comm.all_reduce(gradients)

A wait that fails raises :class:`MaypoleError`, which names the rank to look at first.
"""

import atexit as _atexit
import pickle as _pickle

from . import _maypole
from ._maypole import Communicator, MaypoleError, Memory, Request, __version__

__all__ = ["Communicator", "MaypoleError", "Memory", "Request", "run_threads", "__version__"]


def _broadcast_object(comm, value=None, root=0):
    """Returns the root's ``value`` on every rank. The value is pickled, so ranks trust one another."""
    data = _pickle.dumps(value) if comm.rank == root else b""
    return _pickle.loads(comm._broadcast_bytes(data, root))


def _gather_object(comm, value):
    """Returns the ``value`` of every rank, in rank order, on every rank. Values are pickled."""
    return [_pickle.loads(data) for data in comm._all_gather_bytes(_pickle.dumps(value))]


Communicator.broadcast_object = _broadcast_object
Communicator.gather_object = _gather_object
_atexit.register(_maypole._leave)


def run_threads(world, rank):
    """Calls ``rank(comm)`` on ``world`` threads of this process, each with its communicator, and returns
    the results by rank. For tests and lessons. The first exception of a rank is raised again."""
    from concurrent.futures import ThreadPoolExecutor

    def run(comm):
        with comm:
            return rank(comm)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(run, Communicator.threads(world)))
