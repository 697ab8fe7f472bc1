"""The backend "maypole" of ``torch.distributed``, for tensors on the CPU.

``torch.distributed.init_process_group("maypole")`` finds it by the package's entry point, so nobody imports
this module. It is PyTorch's backend interface (``torch._C._distributed_c10d.Backend``) over
:class:`maypole.Communicator`: a call that the caller waits for at once runs on the caller's thread, any
other call runs on the communicator's thread, in the order of the calls.

Messages between two ranks run on communicators of their own, of which each has a thread. A rank sends on some
of them and receives on the others (see :func:`_channel`), so a receive never waits behind a send.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend
from torch._C._distributed_c10d import ReduceOp

from . import MaypoleError, _maypole
from ._torch_calls import NOTHING, Call, dense, flat, operation, place_of
from ._torch_join import join
from ._torch_works import MaypoleWork, WorkOfMany, explained

# Tensors that are combined together and have no more bytes than this are one call.
_FUSED = 1 << 20
# PyTorch keeps the C++ half of a backend. Without this reference Python would drop the other half, and the
# group would have no methods. shutdown() takes a backend out.
_in_use = set()


# Requests of one communicator run one after another. So that those for several ranks do not wait for one another,
# there are up to this many parts of communicators for each bit of a rank's number: enough for each pair of eight ranks.
_PARTS = 4


def _parts(bit, world):
    """How many parts the communicators of this bit have."""
    return min(_PARTS, 1 << ((world - 1).bit_length() - 1 - bit))


def _channels(world):
    """How many communicators carry messages."""
    return 2 * sum(_parts(bit, world) for bit in range((world - 1).bit_length()))


def _channel(source, target, world):
    """The index of the communicator for messages from rank ``source`` to rank ``target``.

    A message goes by the lowest bit in which the numbers of the two ranks differ, by the other bits in which they
    differ, and by the source's value of the first one. So a rank receives where the bit is not its own, and sends
    where it is: on other communicators. Its two neighbours do not differ from it in the same bits, so each of
    them has communicators of its own; among up to eight ranks each pair has.
    """
    differing = source ^ target
    bit = (differing & -differing).bit_length() - 1
    above = differing >> (bit + 1)
    part = above if above < _PARTS else 1 + above % (_PARTS - 1)
    part += sum(_parts(lower, world) for lower in range(bit))
    return 2 * part + (source >> bit & 1)


class MaypoleBackend(_Backend):
    """One process group. Methods have PyTorch's names and arguments."""

    def __init__(self, store, rank, world, timeout):
        super().__init__(rank, world)
        self._store, self._rank, self._world, self._timeout = store, rank, world, timeout
        self._options = _Backend.Options("maypole", timeout)
        self._comm = join(store, rank, world, timeout)
        _maypole._wait_eagerly(self._comm)
        self._channels = [self._comm.duplicate() for _ in range(_channels(world))]
        self._sequence = 0
        self._barriers = 0
        self._batch = None
        _in_use.add(self)

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
        return False

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    def _get_sequence_number_for_group(self):
        return self._sequence

    def set_timeout(self, timeout):
        for comm in (self._comm, *self._channels):
            comm.set_timeout(timeout.total_seconds())

    def abort(self):
        self._comm.abort("torch.distributed aborted the group")

    def shutdown(self):
        _in_use.discard(self)
        for comm in (*self._channels, self._comm):
            comm.close()

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
                for call in calls:
                    _maypole._call(self._comm, *call.raw)
            except MaypoleError as error:
                raise explained(error) from None
            for copy in afterwards:
                copy()
            return MaypoleWork(tensors, over=True)
        work = MaypoleWork(tensors, afterwards)
        if self._batch is not None:
            self._batch.append((calls, work))
            return work
        kept = [call.kept for call in calls]
        work._request = _maypole._start(self._comm, [call.raw for call in calls], kept, work._done)
        return work

    def _into(self, tensor):
        """A contiguous place for the result `tensor`, and what copies it there afterwards."""
        tensor = dense(tensor)
        if tensor.is_contiguous():
            return tensor, ()
        place = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        return place, (lambda: tensor.copy_(place),)

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
            kept = [call.kept for call in calls]

            def done(error, _source):
                for _, work in collectives:
                    work._done(error)
                whole._done(error)

            whole._request = _maypole._start(self._comm, [call.raw for call in calls], kept, done)
            works.append(whole)
        return works[0] if len(works) == 1 else WorkOfMany(works)

    # Collectives.

    def broadcast(self, tensors, opts):
        tensor = tensors[getattr(opts, "rootTensor", 0)]
        place, after = self._into(tensor)
        if after:
            place.copy_(tensor)
        call = Call("broadcast", place, place, root=opts.rootRank)
        return self._run([call], tensors, opts, after)

    def _sum_in_place(self, tensors, op):
        """Calls that combine each tensor in place; small ones of one type are one call."""
        name, factor = operation(op)
        calls, after = [], []
        are_alike = len({tensor.dtype for tensor in tensors}) == 1
        bytes_of_all = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if len(tensors) > 1 and are_alike and bytes_of_all <= _FUSED:
            fused = torch.cat([flat(tensor).view(-1) for tensor in tensors])
            parts = fused.split([tensor.numel() for tensor in tensors])
            after = [
                lambda tensor=dense(tensor), part=part: tensor.copy_(part.view(tensor.shape))
                for tensor, part in zip(tensors, parts)
            ]
            return [Call("all_reduce", fused, fused, op=name, factor=factor, moves=False)], after
        for tensor in tensors:
            place, copies = self._into(tensor)
            if copies:
                place.copy_(tensor)
            calls.append(Call("all_reduce", place, place, op=name, factor=factor, moves=False))
            after.extend(copies)
        return calls, after

    def _gather_rows(self, rows, counts):
        """The rows of all ranks, one behind the other; rank r has counts[r]."""
        width = rows.shape[1:].numel()
        whole = torch.empty((sum(counts), *rows.shape[1:]), dtype=rows.dtype)
        call = Call("all_gather", rows, whole, counts=([count * width for count in counts], None))
        _maypole._call(self._comm, *call.raw)
        return whole

    def _sum_sparse(self, tensor, op):
        """Adds sparse tensors: every rank gets all indices and values, and adds them in rank order."""
        if op != ReduceOp.SUM:
            raise RuntimeError("maypole adds sparse tensors, and has no other reduction of them")
        mine = tensor.detach().coalesce()
        counts = torch.empty(self._world, dtype=torch.int64)
        count = torch.tensor([mine.values().size(0)])
        _maypole._call(self._comm, *Call("all_gather", count, counts).raw)
        counts = counts.tolist()
        indices = self._gather_rows(mine.indices().t().contiguous(), counts)
        values = self._gather_rows(mine.values().contiguous(), counts)
        total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
        # A detached sparse tensor would keep the result for itself.
        with torch.no_grad():
            tensor.copy_(total)

    def allreduce(self, tensors, opts=None):
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        if any(tensor.is_sparse for tensor in tensors):
            for tensor in tensors:
                self._sum_sparse(tensor, op)
            return MaypoleWork(tensors, over=True)
        calls, after = self._sum_in_place(tensors, op)
        return self._run(calls, tensors, opts, after)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def allreduce_sparse(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        tensor = tensors[getattr(opts, "rootTensor", 0)]
        name, factor = operation(opts.reduceOp)
        source = flat(tensor)
        if self._rank != opts.rootRank:
            call = Call("reduce", source, None, opts.rootRank, name, factor, moves=False)
            return self._run([call], tensors, opts)
        place, after = self._into(tensor)
        if after:
            place.copy_(tensor)
        call = Call("reduce", place, place, opts.rootRank, name, factor, moves=False)
        return self._run([call], tensors, opts, after)

    def _gathered(self, outs, tensor):
        """A call that gathers `tensor` of all ranks in `outs`, and the copies afterwards."""
        source = flat(tensor)
        lengths = [out.numel() for out in outs]
        counts = NOTHING
        if len(set(lengths)) > 1:
            if lengths[self._rank] != source.numel():
                raise RuntimeError(
                    f"the list has {lengths[self._rank]} elements for this rank {self._rank}, whose tensor has "
                    f"{source.numel()}"
                )
            counts = (lengths, None)
        else:
            lengths = [source.numel()] * len(outs)
        whole = torch.empty(sum(lengths), dtype=source.dtype)
        after = [
            lambda out=dense(out), part=part: out.copy_(part.view(out.shape))
            for out, part in zip(outs, whole.split(lengths))
        ]
        return Call("all_gather", source, whole, counts=counts), after

    def allgather(self, outs, ins, opts=None):
        gathered = [self._gathered(out, tensor) for out, tensor in zip(outs, ins)]
        after = [copy for _, copies in gathered for copy in copies]
        return self._run([call for call, _ in gathered], list(outs[0]), opts, after)

    def allgather_coalesced(self, outs, ins, opts=None):
        by_input = [[outs[rank][at] for rank in range(self._world)] for at in range(len(ins))]
        return self.allgather(by_input, ins, opts)

    def _gathered_single(self, out, tensor):
        place, after = self._into(out)
        source = flat(tensor)
        if self._is_block_of(source, place):
            source = place
        return Call("all_gather", source, place), after

    def _is_block_of(self, part, whole):
        """True if `part` is this rank's block of `whole`, so that the call works in place."""
        bytes_of_part = part.numel() * part.element_size()
        return part.numel() > 0 and part.data_ptr() == whole.data_ptr() + self._rank * bytes_of_part

    def all_gather_single(self, out, tensor, opts=None):
        call, after = self._gathered_single(out, tensor)
        return self._run([call], [out], opts, after)

    def all_gather_single_coalesced(self, outs, ins, opts=None):
        gathered = [self._gathered_single(out, tensor) for out, tensor in zip(outs, ins)]
        after = [copy for _, copies in gathered for copy in copies]
        return self._run([call for call, _ in gathered], list(outs), opts, after)

    def _scattered_sum(self, out, source, op, lengths=()):
        """A call for this rank's block of the sum of `source`. `lengths` are those of the blocks, by rank."""
        name, factor = operation(op)
        place, after = self._into(out)
        if len(set(lengths)) > 1:
            if lengths[self._rank] != place.numel():
                raise RuntimeError(
                    f"the list has {lengths[self._rank]} elements for this rank {self._rank}, whose output has "
                    f"{place.numel()}"
                )
            counts = (lengths, None)
            call = Call("reduce_scatter", source, place, op=name, factor=factor, counts=counts, moves=False)
            return call, after
        if self._is_block_of(place, source):
            return Call("reduce_scatter", source, source, op=name, factor=factor, moves=False), after
        return Call("reduce_scatter", source, place, op=name, factor=factor, moves=False), after

    def reduce_scatter(self, outs, ins, opts):
        sources = [torch.cat([flat(part).view(-1) for part in parts]) for parts in ins]
        lengths = [[part.numel() for part in parts] for parts in ins]
        sums = [self._scattered_sum(*of, opts.reduceOp, counts) for *of, counts in zip(outs, sources, lengths)]
        after = [copy for _, copies in sums for copy in copies]
        return self._run([call for call, _ in sums], list(outs), opts, after)

    def reduce_scatter_single(self, out, tensor, opts=None):
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        call, after = self._scattered_sum(out, flat(tensor), op)
        return self._run([call], [out], opts, after)

    def reduce_scatter_single_coalesced(self, outs, ins, opts=None):
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        sums = [self._scattered_sum(out, flat(tensor), op) for out, tensor in zip(outs, ins)]
        after = [copy for _, copies in sums for copy in copies]
        return self._run([call for call, _ in sums], list(outs), opts, after)

    def gather(self, outs, ins, opts):
        source = flat(ins[0])
        if self._rank != opts.rootRank:
            return self._run([Call("gather", source, None, root=opts.rootRank)], [], opts)
        whole = torch.empty(self._world * source.numel(), dtype=source.dtype)
        parts = whole.chunk(self._world) if source.numel() else [whole] * self._world
        after = [
            lambda out=dense(out), part=part: out.copy_(part.view(out.shape)) for out, part in zip(outs[0], parts)
        ]
        call = Call("gather", source, whole, root=opts.rootRank)
        return self._run([call], list(outs[0]), opts, after)

    def gather_single(self, out, tensor, opts):
        if self._rank != opts.rootRank:
            return self._run([Call("gather", flat(tensor), None, root=opts.rootRank)], [out], opts)
        place, after = self._into(out)
        call = Call("gather", flat(tensor), place, root=opts.rootRank)
        return self._run([call], [out], opts, after)

    def scatter(self, outs, ins, opts):
        place, after = self._into(outs[0])
        source = None
        if self._rank == opts.rootRank:
            source = torch.cat([flat(part).view(-1) for part in ins[0]])
        call = Call("scatter", source, place, root=opts.rootRank)
        return self._run([call], list(outs), opts, after)

    def all_to_all_single(self, out, tensor, out_splits, in_splits, opts=None):
        source = flat(tensor)
        place, after = self._into(out)
        counts = NOTHING
        if out_splits or in_splits:
            counts = (self._rows(source, in_splits), self._rows(place, out_splits))
        elif source.dim() and source.size(0) % self._world or place.dim() and place.size(0) % self._world:
            raise RuntimeError("the first dimension does not divide equally over the ranks")
        call = Call("all_to_all", source, place, counts=counts)
        return self._run([call], [out], opts, after)

    def _rows(self, tensor, splits):
        """Elements for each rank, of `splits` rows or of equal parts."""
        rows = tensor.size(0)
        splits = list(splits) or [rows // self._world] * self._world
        if sum(splits) != rows:
            raise RuntimeError(f"the splits {splits} do not sum to the {rows} rows of the tensor")
        width = tensor.numel() // rows if rows else 0
        return [count * width for count in splits]

    def alltoall(self, outs, ins, opts=None):
        source = torch.cat([flat(part).view(-1) for part in ins])
        counts = [part.numel() for part in outs]
        place = torch.empty(sum(counts), dtype=source.dtype)
        after = [
            lambda out=dense(out), part=part: out.copy_(part.view(out.shape))
            for out, part in zip(outs, place.split(counts))
        ]
        counts = ([part.numel() for part in ins], counts)
        call = Call("all_to_all", source, place, counts=counts)
        return self._run([call], list(outs), opts, after)

    def barrier(self, opts=None):
        nothing = torch.empty(0, dtype=torch.uint8)
        return self._run([Call("barrier", nothing, nothing)], [], opts)

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

    def _message(self, sends, tensor, peer, tag):
        place, after = (flat(tensor), ()) if sends else self._into(tensor)
        work = MaypoleWork([tensor], after)
        message = ("uint8", place_of(place))
        if peer is None:
            sources = (source for source in range(self._world) if source != self._rank)
            channels = sorted({_channel(source, self._rank, self._world) for source in sources})
            on = [self._channels[channel] for channel in channels]
            work._request = _maypole._start_any_source(on, *message, tag, [place], work._done)
        else:
            work._source = peer
            pair = (self._rank, peer) if sends else (peer, self._rank)
            comm = self._channels[_channel(*pair, self._world)]
            work._request = _maypole._start_message(comm, sends, *message, peer, tag, [place], work._done)
        if self._batch is not None:
            self._batch.append((None, work))
        return work

    def send(self, tensors, dst, tag=0):
        return self._message(True, tensors[0], dst, tag)

    def recv(self, tensors, src, tag=0):
        return self._message(False, tensors[0], src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._message(False, tensors[0], None, tag)

    # Names of earlier versions of PyTorch.
    recvAnysource = recv_anysource
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _create(options, _backend_options=None):
    return MaypoleBackend(options.store, options.group_rank, options.group_size, options.timeout)


def register():
    """Makes the backend known to PyTorch. Called by PyTorch, through the package's entry point."""
    if "maypole" not in dist.Backend.backend_list:
        dist.Backend.register_backend("maypole", _create, extended_api=True, devices=["cpu"])
