"""Batches of calls: what `start_coalescing` begins and `end_coalescing` ends."""

import contextlib
import functools
import sys
import threading

import torch
from torch.distributed import distributed_c10d

from ._errors import make
from ._torch_overlap import check_apart
from ._torch_works import MaypoleWork


class Batch:
    """The calls of one thread since the batch was opened. Messages begin at once; collectives begin together, when
    the batch ends or the program waits for one of them."""

    def __init__(self, start):
        """`start(calls, work, done)` starts calls as one request, which is that of `work`."""
        self._start = start
        self._thread = threading.get_ident()
        self._collectives = []
        self._works = []

    def is_here(self):
        """True on the thread that has opened the batch. Calls of other threads are not part of it."""
        return self._thread == threading.get_ident()

    def add_message(self, work):
        self._works.append(work)

    def add_collective(self, calls, work):
        work.batch = self
        self._collectives.append((calls, work))

    def flush(self):
        """Starts the collectives so far."""
        collectives, self._collectives = self._collectives, []
        if not collectives:
            return
        whole = MaypoleWork([tensor for _, work in collectives for tensor in work._tensors])
        for _, work in collectives:
            work.batch, work.whole = None, whole

        def done(error):
            for _, work in collectives:
                work._done(error)
            whole._done(error)

        calls = [call for calls, _ in collectives for call in calls]
        try:
            check_apart([call.kept for call in calls], [copy for _, work in collectives for copy in work.copies])
            self._start(calls, whole, done)
        except BaseException as error:
            end_with(error, collectives)
            raise
        # Each work has a future of its own, and none of them has a request.
        whole._request._wait_eagerly()
        self._works.append(whole)

    def end(self):
        """Starts what was not started, and returns the works of all calls."""
        self.flush()
        return self._works

    def discard(self, why):
        """Ends the batch without starting its collectives."""
        collectives, self._collectives = self._collectives, []
        end_with(make("invalid", f"this call was never made: {why}", None, False), collectives)


def end_with(error, collectives):
    for _, work in collectives:
        work.batch = work.whole = None
        work._done(error)


@functools.cache
def discard_after_exceptions():
    """Lets PyTorch's manager of batches end its batch if an exception leaves it, once there is a group of this
    backend. Otherwise PyTorch, and the backend, would add all later calls to the batch, which never ends."""
    theirs = distributed_c10d._coalescing_manager

    @functools.wraps(theirs)
    @contextlib.contextmanager
    def ours(group=None, *args, **kwargs):
        try:
            with theirs(group, *args, **kwargs) as manager:
                yield manager
        except BaseException:
            _discard(group)
            raise

    for module in list(sys.modules.values()):
        # Others have imported it by name.
        if getattr(module, "__dict__", {}).get("_coalescing_manager") is theirs:
            module._coalescing_manager = ours


def _discard(group):
    group = group or distributed_c10d._get_default_group()
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return
    if hasattr(backend, "discard_batch"):
        distributed_c10d._world.pg_coalesce_state.pop(group, None)
        backend.discard_batch("an exception has left its batch")
