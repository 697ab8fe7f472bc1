"""Maypole: collective communication for CPUs.

Every rank runs the same program; ``python -m maypole run -n 4 program.py`` starts four of them::

    import maypole, numpy as np

    with maypole.Communicator() as comm:
        gradients = np.full(1_000_000, comm.rank, dtype=np.float32)
        comm.all_reduce(gradients)

A wait that fails raises :class:`MaypoleError`, which names the rank to look at first.
"""

import asyncio as _asyncio
import atexit as _atexit

from . import _errors, _maypole, _mpi4py, _objects
from ._errors import Aborted, InvalidArgument, InvalidType, JoinError, MaypoleError, Mismatch, PeerLost, Timeout
from ._maypole import Communicator, Memory, MessageRequest, Request, __version__

__all__ = ["Communicator", "Memory", "MessageRequest", "Request", "run_threads", "__version__", *_errors.__all__]


async def _completed(request):
    """Polls, rarer and rarer: a thread for each request that waits would be one too many for a thousand requests."""
    pause = 0
    while not request.test():
        await _asyncio.sleep(pause)
        pause = min(2 * pause or 50e-6, 2e-3)
    return request.wait()


for _name in ("broadcast_object", "gather_object", "scatter_object", "send_object", "recv_object"):
    setattr(Communicator, _name, getattr(_objects, _name))
Request.__await__ = MessageRequest.__await__ = lambda self: _completed(self).__await__()
_mpi4py.add_hints(Communicator)
_atexit.register(_maypole._leave)


def run_threads(world, rank):
    """Calls ``rank(comm)`` on ``world`` threads of this process, each with its communicator, and returns
    the results by rank. For notebooks, tests and lessons. The exception that came first is raised again, with a
    note for each other rank that raised one; these are the ``exceptions`` of the group that is its context.
    Ctrl-C ends the calls of all ranks."""
    from concurrent.futures import ThreadPoolExecutor, wait

    raised = []

    def run(comm):
        with comm:
            try:
                return rank(comm)
            except BaseException as error:
                # Before the other ranks are told, which then raise their own.
                raised.append((comm.rank, error))
                raise

    comms = Communicator.threads(world)
    with ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(run, comm) for comm in comms]
        try:
            wait(futures)
        except BaseException:
            # KeyboardInterrupt, which Python raises in the main thread alone.
            comms[0].abort("interrupted")
            raise
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
