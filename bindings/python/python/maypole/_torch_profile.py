"""Calls in PyTorch's profiler: "maypole:all_reduce" and so on."""

from contextlib import nullcontext

from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.futures import Future

_NOTHING = nullcontext()


def span(name):
    """A context that the profiler, if it is on, shows by this name."""
    return record_function(f"maypole:{name}") if _profiler_enabled() else _NOTHING


def end_with(recorded, work):
    """Lets what `span` has given end with `work`."""
    if recorded is not None:
        ended = Future()
        recorded._call_end_callbacks_on_future(ended)
        work._end_first(ended)
