"""The exceptions of failed calls. The native part and the backend of PyTorch make them by ``make``."""


class MaypoleError(RuntimeError):
    """A call has failed. `kind` names the failure ("timed out", "mismatch", ...), `culprit` is the rank to look at
    first or None, and `retryable` is true if the same program may succeed another time. All ranks raise the class of
    the first failure, and later calls raise it again."""

    kind = "failed"
    culprit = None
    retryable = False


class InvalidArgument(MaypoleError, ValueError):
    """An argument is wrong, or a message does not fit its receive. The group works as before."""


class InvalidType(InvalidArgument, TypeError):
    """An argument has a wrong type."""


class Mismatch(MaypoleError):
    """The ranks have called different things."""


class Timeout(MaypoleError, TimeoutError):
    """Another rank has not done its part in time."""


class PeerLost(MaypoleError, ConnectionError):
    """Another rank has ended or cannot be reached any more. All ranks raise this, with the same culprit, whichever of
    them detected it."""


class Aborted(MaypoleError):
    """Another rank has ended the group, by abort() or by an exception in its program."""


class JoinError(MaypoleError, ConnectionError):
    """The ranks could not be joined or connected."""


_CLASSES = {
    "invalid": InvalidArgument,
    "type": InvalidType,
    "mismatch": Mismatch,
    "timed out": Timeout,
    "peer lost": PeerLost,
    "aborted": Aborted,
    "connect": JoinError,
    "join": JoinError,
}
__all__ = ["MaypoleError", *dict.fromkeys(of_kind.__name__ for of_kind in _CLASSES.values())]
for _name in __all__:
    globals()[_name].__module__ = "maypole"


def make(kind, text, culprit, retryable):
    """The exception for a failure of this kind."""
    error = _CLASSES.get(kind, MaypoleError)(text)
    error.kind = "invalid" if kind == "type" else kind
    error.culprit, error.retryable = culprit, retryable
    return error
