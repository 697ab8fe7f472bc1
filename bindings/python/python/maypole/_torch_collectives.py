"""The collectives of a process group, as PyTorch's backend interface names them."""

import torch
from torch._C._distributed_c10d import ReduceOp

from . import _maypole
from ._torch_calls import NOTHING, Call, dense, flat, in_parts, in_place, into, joined, operation
from ._torch_group import hand_out
from ._torch_works import MaypoleWork

# Tensors that are combined together and have no more bytes than this are one call.
_FUSED = 1 << 20


class Collectives:
    """What a backend inherits. It has `_rank`, `_world`, `_comm` and `_run`."""

    def broadcast(self, tensors, opts):
        tensor = tensors[getattr(opts, "rootTensor", 0)]
        # The root writes nothing, so its tensor may be any view.
        place, copies = (flat(tensor), ()) if self._rank == opts.rootRank else into(tensor)
        call = Call("broadcast", place, place, root=opts.rootRank)
        return self._run([call], tensors, opts, copies)

    def _sum_in_place(self, tensors, op):
        """Calls that combine each tensor in place; small ones of one type are one call."""
        name, factor = operation(op)
        calls, copies = [], []
        are_alike = len({tensor.dtype for tensor in tensors}) == 1
        bytes_of_all = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if len(tensors) > 1 and are_alike and bytes_of_all <= _FUSED:
            fused = torch.cat([flat(tensor).view(-1) for tensor in tensors])
            parts = fused.split([tensor.numel() for tensor in tensors])
            copies = [(dense(tensor), part) for tensor, part in zip(tensors, parts)]
            return [Call("all_reduce", fused, fused, op=name, factor=factor, moves=False)], copies
        for tensor in tensors:
            place, staged = in_place(tensor)
            calls.append(Call("all_reduce", place, place, op=name, factor=factor, moves=False))
            copies.extend(staged)
        return calls, copies

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
            if not all(tensor.is_sparse for tensor in tensors):
                raise RuntimeError("maypole adds sparse or dense tensors, and not both in one call")
            for tensor in tensors:
                self._sum_sparse(tensor, op)
            return hand_out(MaypoleWork(tensors, over=True))
        calls, copies = self._sum_in_place(tensors, op)
        return self._run(calls, tensors, opts, copies)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def allreduce_sparse(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        tensor = tensors[getattr(opts, "rootTensor", 0)]
        name, factor = operation(opts.reduceOp)
        if self._rank != opts.rootRank:
            call = Call("reduce", flat(tensor), None, opts.rootRank, name, factor, moves=False)
            return self._run([call], tensors, opts)
        place, copies = in_place(tensor)
        call = Call("reduce", place, place, opts.rootRank, name, factor, moves=False)
        return self._run([call], tensors, opts, copies)

    def _run_all(self, made, tensors, opts):
        """Runs calls that were made together, each with its copies."""
        copies = [copy for _, of_one in made for copy in of_one]
        return self._run([call for call, _ in made], tensors, opts, copies)

    def _gathered(self, outs, tensor):
        """A call that gathers `tensor` of all ranks in `outs`, and the copies afterwards."""
        source = flat(tensor)
        whole, copies = in_parts(outs, "all_gather", source)
        lengths = [out.numel() for out in outs]
        if lengths[self._rank] != source.numel():
            raise RuntimeError(
                f"the list has {lengths[self._rank]} elements for this rank {self._rank}, whose tensor has "
                f"{source.numel()}"
            )
        counts = (lengths, None) if len(set(lengths)) > 1 else NOTHING
        return Call("all_gather", source, whole, counts=counts), copies

    def allgather(self, outs, ins, opts=None):
        return self._run_all([self._gathered(out, tensor) for out, tensor in zip(outs, ins)], list(outs[0]), opts)

    def allgather_coalesced(self, outs, ins, opts=None):
        by_input = [[outs[rank][at] for rank in range(self._world)] for at in range(len(ins))]
        return self.allgather(by_input, ins, opts)

    def _gathered_single(self, out, tensor):
        place, copies = into(out)
        return Call("all_gather", flat(tensor), place), copies

    def all_gather_single(self, out, tensor, opts=None):
        return self._run_all([self._gathered_single(out, tensor)], [out], opts)

    def all_gather_single_coalesced(self, outs, ins, opts=None):
        return self._run_all([self._gathered_single(*pair) for pair in zip(outs, ins)], list(outs), opts)

    def _scattered_sum(self, out, source, op, lengths=()):
        """A call for this rank's block of the sum of `source`. `lengths` are those of the blocks, by rank."""
        name, factor = operation(op)
        place, copies = into(out)
        counts = NOTHING
        if len(set(lengths)) > 1:
            if lengths[self._rank] != place.numel():
                raise RuntimeError(
                    f"the list has {lengths[self._rank]} elements for this rank {self._rank}, whose output has "
                    f"{place.numel()}"
                )
            counts = (lengths, None)
        return Call("reduce_scatter", source, place, op=name, factor=factor, counts=counts, moves=False), copies

    def reduce_scatter(self, outs, ins, opts):
        sources = [joined(parts, "reduce_scatter") for parts in ins]
        lengths = [[part.numel() for part in parts] for parts in ins]
        sums = [self._scattered_sum(*of, opts.reduceOp, counts) for *of, counts in zip(outs, sources, lengths)]
        return self._run_all(sums, list(outs), opts)

    def reduce_scatter_single(self, out, tensor, opts=None):
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        return self._run_all([self._scattered_sum(out, flat(tensor), op)], [out], opts)

    def reduce_scatter_single_coalesced(self, outs, ins, opts=None):
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        sums = [self._scattered_sum(out, flat(tensor), op) for out, tensor in zip(outs, ins)]
        return self._run_all(sums, list(outs), opts)

    def gather(self, outs, ins, opts):
        source = flat(ins[0])
        if self._rank != opts.rootRank:
            return self._run([Call("gather", source, None, root=opts.rootRank)], [], opts)
        whole, copies = in_parts(outs[0], "gather", source)
        call = Call("gather", source, whole, root=opts.rootRank)
        return self._run([call], list(outs[0]), opts, copies)

    def gather_single(self, out, tensor, opts):
        if self._rank != opts.rootRank:
            return self._run([Call("gather", flat(tensor), None, root=opts.rootRank)], [out], opts)
        place, copies = into(out)
        call = Call("gather", flat(tensor), place, root=opts.rootRank)
        return self._run([call], [out], opts, copies)

    def scatter(self, outs, ins, opts):
        place, copies = into(outs[0])
        source = joined(ins[0], "scatter") if self._rank == opts.rootRank else None
        call = Call("scatter", source, place, root=opts.rootRank)
        return self._run([call], list(outs), opts, copies)

    def all_to_all_single(self, out, tensor, out_splits, in_splits, opts=None):
        source = flat(tensor)
        place, copies = into(out)
        counts = NOTHING
        if out_splits or in_splits:
            counts = (self._rows(source, in_splits), self._rows(place, out_splits))
        elif source.dim() and source.size(0) % self._world or place.dim() and place.size(0) % self._world:
            raise RuntimeError("the first dimension does not divide equally over the ranks")
        return self._run([Call("all_to_all", source, place, counts=counts)], [out], opts, copies)

    def _rows(self, tensor, splits):
        """Elements for each rank, of `splits` rows or of equal parts."""
        rows = tensor.size(0)
        splits = list(splits) or [rows // self._world] * self._world
        if sum(splits) != rows:
            raise RuntimeError(f"the splits {splits} do not sum to the {rows} rows of the tensor")
        width = tensor.numel() // rows if rows else 0
        return [count * width for count in splits]

    def alltoall(self, outs, ins, opts=None):
        source = joined(ins, "all_to_all")
        place, copies = in_parts(outs, "all_to_all", source)
        counts = ([part.numel() for part in ins], [out.numel() for out in outs])
        return self._run([Call("all_to_all", source, place, counts=counts)], list(outs), opts, copies)

    def barrier(self, opts=None):
        nothing = torch.empty(0, dtype=torch.uint8)
        return self._run([Call("barrier", nothing, nothing)], [], opts)

    # Names of earlier versions of PyTorch.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
