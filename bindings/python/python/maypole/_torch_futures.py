"""The future of a call, and the threads on which callbacks run that a program gives it."""

import threading
from queue import SimpleQueue

from torch.futures import Future


class CallFuture:
    """A future, and which thread completes it: the communicator's, or, once a program has the future,
    one for callbacks. A callback may make calls and wait for them, which the communicator's thread
    would have to run."""

    def __init__(self):
        self._future = Future()
        # Whoever asks for the future while it is completed waits, and gets it with its result.
        self._lock = threading.RLock()
        # How deep in callbacks the program asked for it; None if it did not.
        self._depth = None

    def complete(self, result, failure=None):
        with self._lock:
            if self._depth is None:
                self._set(result, failure)
                return
        _thread_of(self._depth).later(lambda: self._set(result, failure))

    def _set(self, result, failure):
        self._future.set_result(result) if failure is None else self._future.set_exception(failure)

    def for_callbacks(self):
        """The future, for a program that may give it callbacks."""
        with self._lock:
            if self._depth is None:
                self._depth = getattr(_here, "depth", 0)
        return self._future

    def for_waiting(self):
        """The future, for what does not wait in its callbacks."""
        return self._future


class _CallbackThread(threading.Thread):
    """Runs callbacks one after the other, in the order in which their calls end: that is the same
    order on all ranks, so the calls that callbacks make agree."""

    def __init__(self, depth):
        super().__init__(name=f"maypole-callbacks-{depth}", daemon=True)
        self._depth = depth
        self._queue = SimpleQueue()
        self.start()

    def later(self, what):
        self._queue.put(what)

    def run(self):
        _here.depth = self._depth + 1
        while True:
            self._queue.get()()


_here = threading.local()
_threads = []
_threads_lock = threading.Lock()


def _thread_of(depth):
    """The thread of futures that a program asked for `depth` deep in callbacks. What a callback starts
    and waits for is completed on another thread than the callback's."""
    with _threads_lock:
        while len(_threads) <= depth:
            _threads.append(_CallbackThread(len(_threads)))
        return _threads[depth]
