"""Numbers instead of arrays."""

from array import array

from ._errors import make


def combine(comm, name, number, op, root, error):
    """The result of the call `name` on a number of Python or NumPy. Raises `error` if `number` is none."""
    if hasattr(number, "item") and not hasattr(number, "__setitem__"):
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise error
    try:
        word = array("d" if isinstance(number, float) or op == "avg" else "q", [number])
    except OverflowError:
        text = f"data is {number}, which has more than 64 bits: gather_object moves it whole"
        raise make("invalid", text, None, False) from None
    getattr(comm, name)(word, op, *([] if root is None else [root]))
    return word[0] if root in (None, comm.rank) else None
