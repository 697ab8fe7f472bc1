"""The backend "maypole" of ``torch.distributed``, for tensors on the CPU.

``torch.distributed.init_process_group("maypole")`` finds it by the package's entry point, so nobody imports
this module. It is PyTorch's backend interface (``torch._C._distributed_c10d.Backend``) over
:class:`maypole.Communicator`: a call that the caller waits for at once runs on the caller's thread, any
other collective runs on the communicator's thread, in the order of the calls. Messages go on beside them, each
to its own end, and are matched by their tags; the thread that waits for one drives them.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

from . import MaypoleError, _maypole
from ._torch_calls import elements_of, flat, into, place_of
from ._torch_collectives import Collectives
from ._torch_group import NotAMember, hand_out, replace_methods
from ._torch_join import join
from ._torch_profile import end_with, span
from ._torch_works import MaypoleWork, MessageWork, WorkOfMany, explained

# PyTorch keeps the C++ half of a backend. Without this reference Python would drop the other half, and the
# group would have no methods. shutdown() takes a backend out.
_in_use = set()


class MaypoleBackend(Collectives, _Backend):
    """One process group. Methods have PyTorch's names and arguments."""

    def __init__(self, store, rank, world, timeout):
        super().__init__(rank, world)
        self._store, self._rank, self._world, self._timeout = store, rank, world, timeout
        self._options = _Backend.Options("maypole", timeout)
        self._comm = join(store, rank, world, timeout)
        self._sequence = 0
        self._barriers = 0
        self._batch = None
        _in_use.add(self)
        replace_methods()

    # What the group is.

    def getBackendName(self):
        return "maypole"

    name = getBackendName

    @property
    def options(self):
        return self._options

    @property
    def supports_coalescing(self):
        return True

    @property
    def supports_splitting(self):
        return True

    def split(self, store, ranks, options):
        """The group of `ranks`, which are ranks of this one: what `dist.split_group` makes on each of them."""
        if self._rank not in ranks:
            raise NotAMember
        return MaypoleBackend(store, ranks.index(self._rank), len(ranks), options._timeout)

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    def _get_sequence_number_for_group(self):
        return self._sequence

    def set_timeout(self, timeout):
        self._comm.set_timeout(timeout.total_seconds())

    def abort(self):
        self._comm.abort("torch.distributed aborted the group")

    def shutdown(self):
        _in_use.discard(self)
        self._comm.close()

    def supports_tensor_alloc(self, _device=None):
        return True

    def allocate_tensor(self, size, *, dtype, device=None):
        """A tensor in memory that the other ranks of the host reach in place. All ranks call it."""
        count = size if isinstance(size, int) else int(torch.Size(size).numel())
        memory = self._comm.alloc(max(count * dtype.itemsize, 1))
        return torch.frombuffer(memory, dtype=dtype, count=count).view(size)

    # Running calls.

    def _run(self, calls, tensors, opts=None, afterwards=()):
        """Runs `calls` in order, then `afterwards`. On this thread if the caller waits at once."""
        self._sequence += 1
        if self._batch is None and getattr(opts, "asyncOp", True) is False:
            try:
                with span(calls[0].name):
                    for call in calls:
                        _maypole._call(self._comm, *call.raw)
            except MaypoleError as error:
                raise explained(error) from None
            for copy in afterwards:
                copy()
            return hand_out(MaypoleWork(tensors, over=True))
        work = MaypoleWork(tensors, afterwards)
        if self._batch is not None:
            self._batch.append((calls, work))
        else:
            self._start(calls, work, work._done)
        return hand_out(work)

    def _start(self, calls, work, done):
        """Starts `calls` as one request, which is that of `work`."""
        kept = [call.kept for call in calls]
        with span(calls[0].name) as recorded:
            work._request = _maypole._start(self._comm, [call.raw for call in calls], kept, done)
            end_with(recorded, work)

    def start_coalescing(self, *_device):
        self._batch = []

    def end_coalescing(self, *_device):
        """One work for all calls since `start_coalescing`: the collectives are one request."""
        batch, self._batch = self._batch or [], None
        messages = [work for calls, work in batch if calls is None]
        collectives = [(calls, work) for calls, work in batch if calls is not None]
        works = list(messages)
        if collectives:
            whole = MaypoleWork([tensor for _, work in collectives for tensor in work._tensors])
            calls = [call for calls, _ in collectives for call in calls]

            def done(error):
                for _, work in collectives:
                    work._done(error)
                whole._done(error)

            self._start(calls, whole, done)
            # Each work has a future of its own, and none of them has a request.
            whole._request._wait_eagerly()
            works.append(whole)
        if not works:
            return hand_out(MaypoleWork([], over=True))
        return hand_out(works[0] if len(works) == 1 else WorkOfMany(works))

    def monitored_barrier(self, opts=None, wait_all_ranks=False):
        """A barrier through the group's store, which names the ranks that do not come in time."""
        timeout = getattr(opts, "timeout", self._timeout)
        # PyTorch passes a negative time where the caller has named none.
        timeout = timeout if timeout >= timedelta(0) else self._timeout
        self._barriers += 1
        place = f"maypole/barrier/{self._barriers}"
        milliseconds = int(timeout.total_seconds() * 1000)
        if milliseconds == 0:
            raise RuntimeError(f"Rank {self._rank} timed out in monitoredBarrier after 0 ms")
        if self._rank != 0:
            self._store.set(f"{place}/{self._rank}", "here")
            try:
                self._store.wait([f"{place}/passed"], timeout)
            except RuntimeError as error:
                raise RuntimeError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting "
                    f"for send/recv from rank 0: no answer within {milliseconds} ms; see what rank 0 says"
                ) from error
            return
        missing = []
        for rank in range(1, self._world):
            try:
                self._store.wait([f"{place}/{rank}"], timeout)
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            ranks = ", ".join(map(str, missing))
            plural = "s" if len(missing) > 1 else ""
            raise RuntimeError(f"Rank{plural} {ranks} failed to pass monitoredBarrier in {milliseconds} ms")
        self._store.set(f"{place}/passed", "all")

    # Messages.

    def _message(self, name, tensor, peer, tag):
        sends = name == "send"
        place, after = (flat(tensor), ()) if sends else into(tensor)
        type_name, scale = elements_of(place.dtype, moves=True)
        message = (sends, type_name, place_of(place), peer, tag, place)
        with span(name) as recorded:
            request = _maypole._start_message(self._comm, *message)
            needed = place.numel() * scale if peer is None else None
            work = MessageWork(request, tensor, after, needed)
            end_with(recorded, work)
        if self._batch is not None:
            self._batch.append((None, work))
        return hand_out(work)

    def send(self, tensors, dst, tag=0):
        return self._message("send", tensors[0], dst, tag)

    def recv(self, tensors, src, tag=0):
        return self._message("recv", tensors[0], src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._message("recvAnySource", tensors[0], None, tag)

    # A name of earlier versions of PyTorch.
    recvAnysource = recv_anysource


def _create(options, _backend_options=None):
    return MaypoleBackend(options.store, options.group_rank, options.group_size, options.timeout)


def register():
    """Makes the backend known to PyTorch. Called by PyTorch, through the package's entry point."""
    if "maypole" not in dist.Backend.backend_list:
        dist.Backend.register_backend("maypole", _create, extended_api=True, devices=["cpu"])
