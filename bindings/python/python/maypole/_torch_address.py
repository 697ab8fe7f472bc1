"""Where rank 0 of a process group listens: at an address of its host that the other ranks reach."""

import contextlib
import os
import secrets
import socket

from . import _maypole
from ._errors import make

LOOPBACK = ("127.0.0.1", "::1")
# How long a listener's own host may take to connect to it.
PATIENCE = 1.0


def describe_rank(store):
    """What a rank says of itself: a new number, its host, the addresses of its host, and those by which it finds
    the master."""
    masters = [host for host in (_store_host(store), os.environ.get("MASTER_ADDR")) if host]
    return {
        "number": secrets.token_hex(8),
        "host": _host(),
        "addresses": _maypole._network_addresses(),
        "masters": [address for host in masters for address in _addresses_of(host)],
    }


def address_for(mine, others):
    """The address where rank 0, which is `mine`, listens for the `others`. It has been listened at and connected to.

    MAYPOLE_INTERFACE comes first. Ranks that share a host meet at loopback. Otherwise the address is one by which
    others find the master, if rank 0's host has it, or lies on the way to one of them: the host's own name often
    stands for loopback on that host.
    """
    away = [each for each in others if each["host"] is None or each["host"] != mine["host"]]
    if os.environ.get("MAYPOLE_INTERFACE", "auto") not in ("", "auto"):
        candidates = mine["addresses"]
    elif not away:
        candidates = LOOPBACK
    else:
        named = [address for each in (*away, mine) for address in each["masters"]]
        routed = [_source_of_route(address) for each in away for address in each["addresses"]]
        candidates = [it for it in (*named, *routed, *mine["addresses"]) if it and not _is_local_only(it)]
        if all(each["host"] is None for each in away):
            # They may be on this host.
            candidates += LOOPBACK
    for address in dict.fromkeys(candidates):
        if _is_reachable(address):
            return address
    tried = ", ".join(dict.fromkeys(candidates)) or "none"
    text = (
        f"rank 0 has no address at which ranks of other hosts reach it (tried {tried}): set MAYPOLE_INTERFACE to the "
        "interface, or the network, that joins the hosts"
    )
    raise make("join", text, 0, False)


def location_of(store):
    """Words for the place of the store."""
    host = _store_host(store)
    return f"in the store at {host}:{_inner(store).port}" if host else "in the group's store"


def _inner(store):
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _store_host(store):
    return getattr(_inner(store), "host", None)


def _host():
    """The identity of this host and of its network namespace; None where the kernel does not say it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return None


def _addresses_of(host):
    with contextlib.suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(where[0] for *_, where in found))
    return []


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_local_only(address):
    """True of addresses that mean another host, or another interface, elsewhere."""
    local = ("127.", "169.254.", "fe8", "fe9", "fea", "feb", "::ffff:127.")
    return address in ("0.0.0.0", "::", "::1") or address.lower().startswith(local)


def _source_of_route(address):
    """This host's address on the way to `address`, which is sent nothing; None if there is no way."""
    with contextlib.suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return probe.getsockname()[0]
    return None


def _is_reachable(address):
    """True if this host can listen at `address` and connect to it there."""
    with contextlib.suppress(OSError), socket.socket(_family(address)) as listener:
        listener.bind((address, 0))
        listener.listen(1)
        with socket.create_connection((address, listener.getsockname()[1]), PATIENCE):
            return True
    return False
