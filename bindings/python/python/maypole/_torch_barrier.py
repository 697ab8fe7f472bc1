"""A barrier through the group's store, which names the ranks that do not come."""

import json
import time
from datetime import timedelta

from ._torch_join import await_keys


# How many seconds the other ranks wait longer for what rank 0 says.
GRACE = 1.0


class MonitoredBarrier:
    """What a backend inherits. It has `_rank`, `_world`, `_store`, `_timeout`, `_barriers`, and `_job`, which no other
    group of the store has."""

    def monitored_barrier(self, opts=None, wait_all_ranks=False):
        """Waits for all ranks, for one timeout in all. Rank 0 names the ranks that have not come by then: all of
        them if `wait_all_ranks`, else the first."""
        timeout = getattr(opts, "timeout", self._timeout)
        # PyTorch passes a negative time where the caller has named none.
        timeout = timeout if timeout >= timedelta(0) else self._timeout
        self._barriers += 1
        place = f"maypole/barrier/{self._job}/{self._barriers}"
        milliseconds = int(timeout.total_seconds() * 1000)
        if milliseconds == 0:
            raise RuntimeError(f"Rank {self._rank} timed out in monitoredBarrier after 0 ms")
        deadline = time.monotonic() + timeout.total_seconds()
        if self._rank != 0:
            self._wait_for_verdict(place, milliseconds, deadline)
            return
        missing = await_keys(self._store, [f"{place}/{rank}" for rank in range(1, self._world)], deadline)
        ranks = [at + 1 for at in missing]
        flaw = None
        if ranks and wait_all_ranks and len(ranks) > 1:
            flaw = f"Ranks {', '.join(map(str, ranks))} failed to pass monitoredBarrier in {milliseconds} ms"
        elif ranks:
            flaw = f"Rank {ranks[0]} failed to pass monitoredBarrier in {milliseconds} ms"
        self._store.set(f"{place}/verdict", json.dumps(flaw))
        if flaw is not None:
            raise RuntimeError(flaw)

    def _wait_for_verdict(self, place, milliseconds, deadline):
        self._store.set(f"{place}/{self._rank}", "here")
        # Rank 0 may have come later, and its verdict names those that have not.
        if await_keys(self._store, [f"{place}/verdict"], deadline + GRACE):
            flaw = f"no answer within {milliseconds} ms; see what rank 0 says"
        else:
            flaw = json.loads(self._store.get(f"{place}/verdict"))
        if flaw is not None:
            raise RuntimeError(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting "
                f"for send/recv from rank 0: {flaw}"
            )
