"""Hints for programs that were written for mpi4py: the error for a name of its communicator has ours."""

HINTS = {
    "Abort": "abort()",
    "Allgather": "all_gather(data, out=...)",
    "Allgatherv": "all_gather(data, out=..., counts=...)",
    "allgather": "gather_object(value)",
    "Allreduce": "all_reduce(data, op, out=...)",
    "allreduce": "all_reduce(number, op)",
    "Alltoall": "all_to_all(data, out=...)",
    "Alltoallv": "all_to_all(data, out=..., counts=..., receive_counts=...)",
    "Barrier": "barrier()",
    "Bcast": "broadcast(data, root)",
    "bcast": "broadcast_object(value, root)",
    "Dup": "duplicate()",
    "Exscan": "exclusive_scan(data, op, out=...)",
    "exscan": "exclusive_scan(number, op)",
    "Free": "close()",
    "Gather": "gather(data, root, out=...)",
    "Gatherv": "gather(data, root, out=..., counts=...)",
    "Get_rank": "rank",
    "Get_size": "world",
    "Iallreduce": "start('all_reduce', data, op)",
    "Ibarrier": "start('barrier')",
    "Ibcast": "start('broadcast', data, root=...)",
    "Irecv": "irecv(data, source, tag)",
    "Isend": "isend(data, to, tag)",
    "Recv": "recv(data, source, tag)",
    "Reduce": "reduce(data, op, root, out=...)",
    "Reduce_scatter": "reduce_scatter(data, op, out=..., counts=...)",
    "Reduce_scatter_block": "reduce_scatter(data, op, out=...)",
    "Scan": "scan(data, op, out=...)",
    "Scatter": "scatter(data, root, out=...)",
    "Scatterv": "scatter(data, root, out=..., counts=...)",
    "Send": "send(data, to, tag)",
    "Sendrecv": "sendrecv(data, to, out, source, tag)",
    "size": "world",
    "Split": "split(color, key)",
}


class _Hint:
    """A name that no communicator has. It costs other names nothing, unlike ``__getattr__``."""

    def __init__(self, name):
        self._name = name

    def __get__(self, instance, owner=None):
        raise AttributeError(f"a communicator has no {self._name}, as mpi4py's has: use comm.{HINTS[self._name]}")


def add_hints(communicator):
    listed = dir(communicator)
    for name in HINTS:
        setattr(communicator, name, _Hint(name))
    communicator.__dir__ = lambda _self: listed
