"""What PyTorch gets for a call: a work, which is waited for or has a future."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from . import MaypoleError
from ._torch_futures import CallFuture


class MaypoleWork(dist.Work):
    """A call under way, or over. Its future has the list of the tensors."""

    def __init__(self, tensors, afterwards=(), over=False):
        super().__init__()
        self._tensors = tensors
        # What copies results to where they belong, once the call is over.
        self._afterwards = afterwards
        self._request = None
        self._future = CallFuture()
        self._error = None
        self._over = over
        self._source = -1
        if over:
            self._future.complete(tensors)

    def _done(self, error, source=None):
        """Called on the communicator's thread. ``source`` is the rank that a message from any rank came from."""
        if source is not None:
            self._source = source
        failure = explained(error) if error is not None else self._copied()
        self._error = failure
        self._over = True
        self._future.complete(self._tensors, failure)

    def _copied(self):
        """Copies results to where they belong. Returns what prevents it."""
        try:
            for copy in self._afterwards:
                copy()
        except Exception as failure:
            return failure
        return None

    def wait(self, timeout=timedelta(0)):
        if self._request is not None and timeout is not None and timeout > timedelta(0):
            wait_for(self._request, timeout)
        elif self._request is not None:
            request, self._request = self._request, None
            try:
                request.wait()
            except MaypoleError as error:
                raise explained(error) from None
        if self._error is not None:
            raise self._error
        return True

    def get_future(self):
        return self._future.for_callbacks()

    def is_completed(self):
        return self._over

    def is_success(self):
        return self._over and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._tensors or []

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return self._source


class WorkOfMany(dist.Work):
    """Several calls as one."""

    def __init__(self, works):
        super().__init__()
        self._works = works
        self._future = CallFuture()
        tensors = [tensor for work in works for tensor in work.result()]
        if not works:
            self._future.complete(tensors)
            return

        def finish(_):
            self._future.complete(tensors, self.exception())

        parts = [work._future.for_waiting() for work in works]
        torch.futures.collect_all(parts).add_done_callback(finish)

    def wait(self, timeout=timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self):
        return self._future.for_callbacks()

    def is_completed(self):
        return self._future.for_waiting().done()

    def exception(self):
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def result(self):
        return [tensor for work in self._works for tensor in work.result()]


def wait_for(request, timeout):
    deadline = time.monotonic() + timeout.total_seconds()
    while not request.test():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Timed out after {timeout.total_seconds()} s: the call is still under way")
        time.sleep(50e-6)


# Programs on PyTorch look for the word in the text.
_TIMED_OUT = "; a longer timeout would wait for longer"


def explained(error):
    if getattr(error, "kind", "") != "timed out" or str(error).endswith(_TIMED_OUT):
        return error
    said = MaypoleError(f"{error}{_TIMED_OUT}")
    said.kind, said.culprit, said.retryable = error.kind, error.culprit, error.retryable
    return said
