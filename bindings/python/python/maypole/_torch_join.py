"""How the ranks of a process group of PyTorch become ranks of Maypole."""

import json
import os
import secrets
import socket

from . import Communicator


def address():
    """Where rank 0 of a group listens: this host's address on the way to the master, or loopback."""
    master = os.environ.get("MASTER_ADDR", "localhost")
    try:
        probe = socket.socket(socket.AF_INET6 if ":" in master else socket.AF_INET, socket.SOCK_DGRAM)
        with probe:
            probe.connect((master, 9))
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def join(store, rank, world, timeout):
    """All ranks of a group meet at the address that rank 0 leaves in the group's store."""
    seconds = timeout.total_seconds()
    if rank == 0:
        meeting = {"address": address(), "job": secrets.token_hex(8), "key": secrets.token_hex(32)}
        store.set("maypole/meeting", json.dumps(meeting))
    meeting = json.loads(store.get("maypole/meeting"))
    key = bytes.fromhex(meeting["key"])
    return Communicator.join_at(rank, world, meeting["address"], job=meeting["job"], key=key, timeout=seconds)
