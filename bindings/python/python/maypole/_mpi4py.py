"""Hints for programs that were written for mpi4py: the error for a name of its communicator has ours."""

_NAMES = """
Abort=abort Allgather=all_gather Allgatherv=all_gather allgather=gather_object Allreduce=all_reduce allreduce=all_reduce
Alltoall=all_to_all Alltoallv=all_to_all Barrier=barrier Bcast=broadcast bcast=broadcast_object Dup=duplicate
Exscan=exclusive_scan exscan=exclusive_scan Free=close Gather=gather Gatherv=gather Get_rank=rank Get_size=world
Iallreduce=start('all_reduce') Ibarrier=start('barrier') Ibcast=start('broadcast') Irecv=irecv Isend=isend Recv=recv
Reduce=reduce Reduce_scatter=reduce_scatter Reduce_scatter_block=reduce_scatter Scan=scan Scatter=scatter
Scatterv=scatter Send=send Sendrecv=sendrecv Split=split size=world
"""
HINTS = dict(pair.split("=") for pair in _NAMES.split())


class _Hint:
    """A name that no communicator has. Unlike ``__getattr__`` it does not slow other names down."""

    def __init__(self, name):
        self._text = f"a communicator has no {name}, as mpi4py's has: use comm.{HINTS[name]}"

    def __get__(self, instance, owner=None):
        raise AttributeError(self._text)


def add_hints(communicator):
    listed = dir(communicator)
    for name in HINTS:
        setattr(communicator, name, _Hint(name))
    communicator.__dir__ = lambda _self: listed
