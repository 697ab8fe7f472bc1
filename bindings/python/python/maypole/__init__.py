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
    the results by rank. For tests and lessons. The exception that came first is raised again, with a note for
    each other rank that raised one; they are the ``exceptions`` of the group that is its context."""
    from concurrent.futures import ThreadPoolExecutor

    raised = []

    def run(comm):
        with comm:
            try:
                return rank(comm)
            except BaseException as error:
                # Before the other ranks are told, which then raise their own.
                raised.append((comm.rank, error))
                raise

    with ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(run, comm) for comm in Communicator.threads(world)]
    if raised:
        raise _first_with_others(raised)
    return [future.result() for future in futures]


def _first_with_others(raised):
    """The first of the exceptions, each (rank, error), to which the others are attached."""
    (rank, first), *others = raised
    first.add_note(f"raised by rank {rank}")
    for other, error in others:
        first.add_note(f"then rank {other}: {type(error).__name__}: {error}")
    if others:
        last = first
        while last.__context__ is not None:
            last = last.__context__
        last.__context__ = BaseExceptionGroup("what the other ranks raised then", [error for _, error in others])
    return first
