"""What PyTorch gets for a call: a work, which is waited for or has a future."""

import threading
import time
from datetime import timedelta

import torch.distributed as dist

from . import MaypoleError
from ._torch_futures import Outcome, complete_later, depth_here

# Taken for a few assignments, so one lock does for all works.
_completing = threading.Lock()


class _EndingWork(dist.Work):
    """A work whose end is told once. Its future has the list of the tensors, and is made for those who
    ask for it."""

    def __init__(self, tensors):
        super().__init__()
        self._tensors = tensors
        self._outcome = None
        self._depth = 0
        self._listeners = ()
        self._error = None
        self._over = False

    def _end(self, failure):
        with _completing:
            self._error = failure
            self._over = True
            outcome, listeners = self._outcome, self._listeners
        if outcome is not None:
            complete_later(outcome, self._depth, self._tensors, failure)
        for listener in listeners:
            listener()

    def _listen(self, listener):
        """Calls `listener` at the end, on the thread that tells of it, or now."""
        with _completing:
            if not self._over:
                self._listeners += (listener,)
                return
        listener()

    def get_future(self):
        with _completing:
            if self._outcome is None:
                self._outcome = Outcome()
                self._depth = depth_here()
                if self._over:
                    self._outcome.complete(self._tensors, self._error)
            return self._outcome.future

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


class MaypoleWork(_EndingWork):
    """A call under way, or over."""

    def __init__(self, tensors, afterwards=(), over=False):
        super().__init__(tensors)
        # What copies results to where they belong, once the call is over.
        self._afterwards = afterwards
        self._request = None
        self._over = over
        self._source = -1

    def _done(self, error, source=None):
        """Called on the communicator's thread. ``source`` is the rank that a message from any rank came from."""
        if source is not None:
            self._source = source
        self._end(explained(error) if error is not None else self._copied())

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

    def source_rank(self):
        return self._source


class WorkOfMany(_EndingWork):
    """Several calls as one."""

    def __init__(self, works):
        super().__init__([tensor for work in works for tensor in work.result()])
        self._works = works
        self._left = len(works)
        self._counting = threading.Lock()
        if not works:
            self._over = True
        for work in works:
            work._listen(self._one_is_over)

    def _one_is_over(self):
        with self._counting:
            self._left -= 1
            if self._left > 0:
                return
        self._end(next((work.exception() for work in self._works if work.exception() is not None), None))

    def wait(self, timeout=timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        return True


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
