"""Futures of calls, and the threads on which callbacks run that a program gives them."""

import logging
import threading
from queue import SimpleQueue


def complete(future, result, failure):
    future.set_result(result) if failure is None else future.set_exception(failure)


def depth_here():
    """How deep in callbacks this code runs: 0 in a program's own threads."""
    return getattr(_here, "depth", 0)


def complete_later(future, depth, result, failure):
    """Completes `future`, which a program asked for `depth` deep in callbacks, on a thread for callbacks:
    they may make calls and wait for them, which the communicator's thread would have to run. What a
    callback starts and waits for is completed on another thread than the callback's."""
    with _threads_lock:
        while len(_threads) <= depth:
            _threads.append(_CallbackThread(len(_threads)))
        thread = _threads[depth]
    thread.queue.put((future, result, failure))


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
                complete(*self.queue.get())
            except Exception:
                # A program may have completed the future itself. Others still wait for theirs.
                logging.getLogger("maypole").exception("a future cannot be completed")


_here = threading.local()
_threads = []
_threads_lock = threading.Lock()
