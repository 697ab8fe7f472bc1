"""The backend "maypole" of ``torch.distributed``, for tensors on the CPU.

``torch.distributed.init_process_group("maypole")`` finds it by the package's entry point, so nobody imports
this module. It is PyTorch's backend interface (``torch._C._distributed_c10d.Backend``) over
:class:`maypole.Communicator`: a call that the caller waits for at once runs on the caller's thread, any
other collective runs on the communicator's thread, in the order of the calls. Messages go on beside them, each
to its own end, and are matched by their tags; the thread that waits for one drives them.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

from . import MaypoleError, _maypole
from ._torch_barrier import MonitoredBarrier
from ._torch_batch import Batch, discard_after_exceptions
from ._torch_calls import elements_of, flat, into, place_of
from ._torch_collectives import Collectives
from ._torch_group import NotAMember, hand_out, replace_methods
from ._torch_join import join
from ._torch_overlap import check_apart
from ._torch_profile import end_with, span
from ._torch_works import MaypoleWork, MessageWork, WorkOfMany, copied, explained

# PyTorch keeps the C++ half of a backend. Without this reference Python would drop the other half, and the
# group would have no methods. shutdown() takes a backend out.
_in_use = set()


class MaypoleBackend(MonitoredBarrier, Collectives, _Backend):
    """One process group. Methods have PyTorch's names and arguments."""

    def __init__(self, store, rank, world, timeout):
        super().__init__(rank, world)
        self._store, self._rank, self._world, self._timeout = store, rank, world, timeout
        self._options = _Backend.Options("maypole", timeout)
        self._comm, self._job = join(store, rank, world, timeout)
        self._sequence = 0
        self._barriers = 0
        self._batch = None
        _in_use.add(self)
        replace_methods()
        discard_after_exceptions()

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
        self.discard_batch("its group was shut down")
        self._comm.close()

    def supports_tensor_alloc(self, _device=None):
        return True

    def allocate_tensor(self, size, *, dtype, device=None):
        """A tensor in memory that the other ranks of the host reach in place. All ranks call it."""
        count = size if isinstance(size, int) else int(torch.Size(size).numel())
        memory = self._comm.alloc(max(count * dtype.itemsize, 1))
        return torch.frombuffer(memory, dtype=dtype, count=count).view(size)

    # Running calls.

    def _run(self, calls, tensors, opts=None, copies=()):
        """Runs `calls` in order, then `copies`, each (tensor, place). On this thread if the caller waits at once."""
        if len(calls) > 1 or copies:
            check_apart([call.kept for call in calls], copies)
        self._sequence += 1
        batch = self._open_batch()
        if getattr(opts, "asyncOp", True) is False:
            if batch is not None:
                batch.flush()
            try:
                with span(calls[0].name):
                    for call in calls:
                        _maypole._call(self._comm, *call.raw)
            except MaypoleError as error:
                raise explained(error) from None
            failure = copied(copies)
            if failure is not None:
                raise failure
            return hand_out(MaypoleWork(tensors, over=True))
        work = MaypoleWork(tensors, copies)
        if batch is not None:
            batch.add_collective(calls, work)
        else:
            self._start(calls, work, work._done)
        return hand_out(work)

    def _start(self, calls, work, done):
        """Starts `calls` as one request, which is that of `work`."""
        kept = [call.kept for call in calls]
        with span(calls[0].name) as recorded:
            work._request = _maypole._start(self._comm, [call.raw for call in calls], kept, done)
            end_with(recorded, work)

    def _open_batch(self):
        """The open batch, if it is one of this thread."""
        return self._batch if self._batch is not None and self._batch.is_here() else None

    def start_coalescing(self, *_device):
        if self._batch is not None:
            self.discard_batch("another batch began before its batch ended")
            raise RuntimeError("a batch of this group is open already, and was discarded: end it before the next")
        self._batch = Batch(self._start)

    def end_coalescing(self, *_device):
        """One work for all calls since `start_coalescing`: the collectives are one request."""
        batch, self._batch = self._batch, None
        works = batch.end() if batch is not None else []
        if not works:
            return hand_out(MaypoleWork([], over=True))
        return hand_out(works[0] if len(works) == 1 else WorkOfMany(works))

    def discard_batch(self, why):
        """Ends an open batch. Its calls that have not begun fail, and say `why`."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.discard(why)

    # Messages.

    def _message(self, name, tensor, peer, tag):
        sends = name == "send"
        place, copies = (flat(tensor), ()) if sends else into(tensor)
        type_name, scale = elements_of(place.dtype, moves=True)
        message = (sends, type_name, place_of(place), peer, tag, place)
        with span(name) as recorded:
            request = _maypole._start_message(self._comm, *message)
            needed = place.numel() * scale if peer is None else None
            work = MessageWork(request, tensor, copies, needed)
            end_with(recorded, work)
        batch = self._open_batch()
        if batch is not None:
            batch.add_message(work)
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
