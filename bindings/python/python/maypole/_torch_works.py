"""What PyTorch gets for a call: a work, which is waited for or has a future."""

import threading
import time
from datetime import timedelta

import torch.distributed as dist

from ._errors import MaypoleError, make
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
        self._recording = None
        self._error = None
        self._over = False

    def _end_first(self, recording):
        """Completes the future `recording` before anyone learns that the work is over: who has waited may end the
        profiler, whose memory the future's callbacks use."""
        with _completing:
            if not self._over:
                self._recording = recording
        if self._recording is None:
            recording.set_result([])
        self._listen(lambda: None)

    def _end(self, failure):
        with _completing:
            if self._over:
                return
            if self._recording is not None:
                self._recording.set_result([])
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
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._tensors or []

    def synchronize(self):
        self.wait()

    def _raise_or_true(self):
        if self._error is not None:
            raise self._error
        return True


class MaypoleWork(_EndingWork):
    """A collective under way, or over."""

    def __init__(self, tensors, copies=(), over=False):
        super().__init__(tensors)
        # Results and the places that they are copied from, once the call is over.
        self.copies = copies
        self._request = None
        self._over = over
        # The open batch that the call is part of, and later the work of all calls that began with it.
        self.batch = None
        self.whole = None

    def _listen(self, listener):
        self._wait_eagerly()
        super()._listen(listener)

    def get_future(self):
        self._wait_eagerly()
        return super().get_future()

    def _wait_eagerly(self):
        """Nobody says when a program waits for a future. The request begins at once, on another thread."""
        if not self._over and self._request is not None:
            self._request._wait_eagerly()

    def _done(self, error):
        """Called on the thread that runs the request: the communicator's, or one that waits."""
        self._end(explained(error) if error is not None else copied(self.copies))

    def wait(self, timeout=timedelta(0)):
        if self.batch is not None:
            self.batch.flush()
        if self.whole is not None and not self._over:
            self.whole.wait(timeout)
        elif self._request is not None and timeout is not None and timeout > timedelta(0):
            wait_for(self._request, timeout)
        elif self._request is not None:
            request, self._request = self._request, None
            try:
                request.wait()
            except MaypoleError as error:
                raise explained(error) from None
        elif not self._over:
            # Another thread waits for the request.
            ended = threading.Event()
            self._listen(ended.set)
            ended.wait()
        return self._raise_or_true()


class MessageWork(_EndingWork):
    """A message under way, or over. The thread that waits for it drives it."""

    def __init__(self, request, tensor, copies, receives_up_to=None):
        super().__init__([tensor])
        self._request = request
        self._copies = copies
        # The length that a message from any rank must have.
        self._needed = receives_up_to
        self._peer = -1
        self._copying = threading.Lock()

    def _finish(self):
        """Takes the end of the message over, once it has ended or after waiting for it."""
        if self._over:
            return
        try:
            self._peer, count = self._request.wait()
            failure = None
        except MaypoleError as error:
            failure = explained(error)
        with self._copying:
            if self._over:
                return
            if failure is None and self._needed not in (None, count):
                text = f"recv: rank {self._peer} sent {count} elements, and the tensor has {self._needed}"
                failure = make("invalid", text, self._peer, False)
            self._end(failure or copied(self._copies))

    def wait(self, timeout=timedelta(0)):
        if not self._over and timeout is not None and timeout > timedelta(0):
            wait_for(self._request, timeout)
        self._finish()
        return self._raise_or_true()

    def is_completed(self):
        if not self._over and self._request.test():
            self._finish()
        return self._over

    def _listen(self, listener):
        super()._listen(listener)
        self._request.listen(self._finish)

    def get_future(self):
        future = super().get_future()
        if not self._over:
            self._request.listen(self._finish)
        return future

    def source_rank(self):
        return self._peer

    _source_rank = source_rank


class WorkOfMany(_EndingWork):
    """Several calls as one."""

    def __init__(self, works):
        super().__init__([tensor for work in works for tensor in work.result()])
        self._works = works
        self._left = len(works)
        self._counting = threading.Lock()
        self._is_listening = False

    def _finish(self):
        self._end(next((work.exception() for work in self._works if work.exception() is not None), None))

    def _one_is_over(self):
        with self._counting:
            self._left -= 1
            if self._left > 0:
                return
        self._finish()

    def get_future(self):
        future = super().get_future()
        with self._counting:
            listens, self._is_listening = self._is_listening, True
        if not listens:
            for work in self._works:
                work._listen(self._one_is_over)
        return future

    def is_completed(self):
        if not self._over and all([work.is_completed() for work in self._works]):
            self._finish()
        return self._over

    def wait(self, timeout=timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        self._finish()
        return self._raise_or_true()


def copied(copies):
    """Copies results, each (tensor, place), to where they belong. Returns what prevents it."""
    try:
        for tensor, place in copies:
            tensor.copy_(place.view(tensor.shape))
    except Exception as failure:
        return failure
    return None


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
    return make(error.kind, f"{error}{_TIMED_OUT}", error.culprit, error.retryable)
