"""Futures of calls, and the threads on which callbacks run that a program gives them."""

import logging
import threading
from queue import SimpleQueue

from torch.futures import Future


class Outcome:
    """The end of a call, and the future that tells it.

    ``Future.set_exception`` would make the exception the future's value: only Python raises it again, and
    C++ code, such as that of DDP, takes it for the tensors and crashes. A callback that raises is an error in C++,
    too, so the future that is given away is that of a callback.
    """

    def __init__(self):
        self._ended = Future()
        self._failure = None
        self.future = self._ended.then(self._told)

    def _told(self, ended):
        if self._failure is not None:
            raise self._failure
        return ended.value()

    def complete(self, result, failure):
        self._failure = failure
        self._ended.set_result(result if failure is None else [])


def depth_here():
    """How deep in callbacks this code runs: 0 in a program's own threads."""
    return getattr(_here, "depth", 0)


def complete_later(outcome, depth, result, failure):
    """Completes `outcome`, which a program asked for `depth` deep in callbacks, on a thread for callbacks:
    they may make calls and wait for them, which the communicator's thread would have to run. What a
    callback starts and waits for is completed on another thread than the callback's."""
    with _threads_lock:
        while len(_threads) <= depth:
            _threads.append(_CallbackThread(len(_threads)))
        thread = _threads[depth]
    thread.queue.put((outcome, result, failure))


class _CallbackThread(threading.Thread):
    """Completes futures one after the other, in the order in which their calls end: that is the same
    order on all ranks, so the calls that callbacks make agree."""

    def __init__(self, depth):
        super().__init__(name=f"maypole-callbacks-{depth}", daemon=True)
        self._depth = depth
        self.queue = SimpleQueue()
        self.start()

    def run(self):
        _here.depth = self._depth + 1
        while True:
            try:
                outcome, result, failure = self.queue.get()
                outcome.complete(result, failure)
            except Exception:
                # Others still wait for theirs.
                logging.getLogger("maypole").exception("a future cannot be completed")


_here = threading.local()
_threads = []
_threads_lock = threading.Lock()
