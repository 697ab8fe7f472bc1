"""Objects of Python between ranks. They are pickled, so ranks must trust one another."""

import array
import itertools
import pickle
import struct

from ._errors import make

# A message with the length of the pickled object, the tag of the message with the rest of its bytes, and its
# first bytes. It is short enough that sending does not wait for the receiver.
_HEAD = struct.Struct("<QI1012s")
_FIRST = 1012
# Tags of the rest. Each object has another, so that objects of several threads are not mixed up.
_rest_tags = itertools.count()


def broadcast_object(comm, value=None, root=0):
    """Returns the root's ``value`` on every rank."""
    data = pickle.dumps(value) if comm.rank == root else b""
    return pickle.loads(comm._broadcast_bytes(data, root))


def gather_object(comm, value):
    """Returns the ``value`` of every rank, in rank order, on every rank."""
    return [pickle.loads(data) for data in comm._all_gather_bytes(pickle.dumps(value))]


def scatter_object(comm, values=None, root=0):
    """Returns ``values[r]`` of the root on rank r. Other ranks pass nothing."""
    parts, lengths = [], array.array("Q", bytes(8 * comm.world))
    if comm.rank == root:
        parts = [pickle.dumps(value) for value in values or ()]
        if len(parts) != comm.world:
            raise make("invalid", f"values has {len(parts)} items: pass one for each of the {comm.world} ranks", None, False)
        lengths[:] = array.array("Q", map(len, parts))
    comm.broadcast(lengths, root)
    own = bytearray(lengths[comm.rank])
    comm.scatter(b"".join(parts) if parts else None, root, out=own, counts=list(lengths))
    return pickle.loads(own)


def send_object(comm, value, to, tag=0):
    """Sends ``value`` to rank ``to``, which calls ``recv_object`` with the same ``tag``. Waits for that call if
    the pickled value has more than 1012 bytes and ``send`` would wait, so mostly from 16 KiB on. Uses a tag
    from 2**31 on for a long value."""
    data = pickle.dumps(value)
    rest_tag = 1 << 31 | next(_rest_tags) % (1 << 31)
    comm.send(_HEAD.pack(len(data), rest_tag, data[:_FIRST]), to, tag)
    if len(data) > _FIRST:
        comm.send(memoryview(data)[_FIRST:], to, rest_tag)


def recv_object(comm, source=None, tag=0):
    """Returns the next object with this ``tag`` from rank ``source``, or from any rank if ``source`` is None."""
    head = bytearray(_HEAD.size)
    source, _ = comm.recv(head, source, tag)
    length, rest_tag, first = _HEAD.unpack(head)
    data = bytearray(first[:length].ljust(length, b"\0"))
    if length > _FIRST:
        comm.recv(memoryview(data)[_FIRST:], source, rest_tag)
    return pickle.loads(data)
