"""What PyTorch's process group does not pass on of a backend that is written in Python.

It wraps the work that the backend returns, and its wrapper passes on ``wait`` and ``get_future`` alone: its
``is_completed`` is never true, and its ``_source_rank`` raises. And it crashes if ``split`` returns None. So some
methods of its class are replaced, once there is a group of this backend. They call PyTorch's as before.
"""

import functools
import threading

from torch.distributed import ProcessGroup

_made = threading.local()
_RETURN_A_WORK = """
    _allgather_base _end_coalescing _reduce_scatter_base all_gather_single all_gather_single_coalesced
    all_to_all_single allgather allgather_coalesced allgather_into_tensor_coalesced allreduce
    allreduce_coalesced alltoall alltoall_base barrier broadcast gather gather_single recv recv_anysource
    reduce reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced
    reduce_scatter_tensor_coalesced scatter send
""".split()


class NotAMember(Exception):
    """This rank is not in the group that is made."""


def hand_out(work):
    """Notes `work`, which the backend returns to PyTorch, for a program that calls the process group."""
    if getattr(_made, "is_awaited", False):
        _made.work = work
    return work


@functools.cache
def replace_methods():
    """Replaces the methods, the first time."""
    for name in _RETURN_A_WORK:
        if hasattr(ProcessGroup, name):
            setattr(ProcessGroup, name, _giving_the_work(getattr(ProcessGroup, name)))
    ProcessGroup.split_group = _giving_none(ProcessGroup.split_group)


def _giving_the_work(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        _made.is_awaited, _made.work = True, None
        try:
            wrapper = method(*args, **kwargs)
            return _made.work or wrapper
        finally:
            # C++ code, too, calls the backend, and nobody asks for those works.
            _made.is_awaited, _made.work = False, None

    return call


def _giving_none(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except NotAMember:
            return None

    return call
