"""How the ranks of a process group of PyTorch become ranks of Maypole.

They meet through the group's store, which outlives the group: a group made later may have the same keys, and its
ranks may be other processes. So each rank announces itself with a number that it draws anew, and rank 0 answers those
numbers and no others.
"""

import contextlib
import json
import secrets
import time

from . import Communicator, MaypoleError, _maypole
from ._errors import make
from ._torch_address import address_for, describe_rank, location_of

ANSWER = "maypole/answer"
FIRST_PAUSE, LONGEST_PAUSE = 0.0002, 0.02
# How many seconds the other ranks wait longer for what rank 0 says, which names the missing ranks.
GRACE = 2.0


def join(store, rank, world, timeout):
    """Joins as rank `rank` of `world` within `timeout`. Returns the communicator, and a name that no other group
    of the store has."""
    seconds = timeout.total_seconds()
    deadline = time.monotonic() + seconds
    if world == 1:
        return _join_at(rank, world, _meeting("127.0.0.1"), seconds, deadline)
    if rank == 0:
        return _lead(store, world, seconds, deadline)
    mine = describe_rank(store)
    try:
        _maypole._check_join(world)
    except MaypoleError as error:
        # Before rank 0 listens for this one.
        store.set(_place(rank), json.dumps({**mine, "failure": str(error)}))
        raise
    store.set(_place(rank), json.dumps(mine))
    try:
        meeting = _answer(store, rank, mine["number"], seconds, deadline)
    except BaseException:
        _delete(store, _place(rank))
        raise
    joined = _join_at(rank, world, meeting, seconds, deadline)
    _delete(store, _place(rank))
    return joined


def await_keys(store, keys, deadline):
    """Waits until the store has all of `keys`, or until `deadline`. Returns the places of those that it lacks."""
    if not keys or poll(lambda: store.check(keys), deadline):
        return []
    return [at for at, key in enumerate(keys) if not store.check([key])]


def poll(ready, deadline):
    """Calls `ready` until it returns something true, which this returns, or once more at `deadline`. Python can raise
    KeyboardInterrupt meanwhile, which it cannot while a store waits."""
    pause = FIRST_PAUSE
    while True:
        left = deadline - time.monotonic()
        value = ready()
        if value or left <= 0:
            return value
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE)


def _place(rank):
    return f"maypole/rank/{rank}"


def _delete(store, key):
    # Not every store can, and the join has failed for another reason.
    with contextlib.suppress(Exception):
        store.delete_key(key)


def _read(store, key):
    return json.loads(store.get(key)) if store.check([key]) else None


def _meeting(address):
    return {"address": address, "job": secrets.token_hex(8), "key": secrets.token_hex(32)}


def _join_at(rank, world, meeting, seconds, deadline):
    comm = Communicator.join_at(
        rank,
        world,
        meeting["address"],
        job=meeting["job"],
        key=bytes.fromhex(meeting["key"]),
        timeout=seconds,
        join_timeout=max(deadline - time.monotonic(), 0.01),
    )
    return comm, meeting["job"]


def _lead(store, world, seconds, deadline):
    """Rank 0's side: waits for all others, publishes where it listens, and listens there."""
    answered = (_read(store, ANSWER) or {}).get("numbers", [])
    ranks = {}
    answer = {"failure": "rank 0 could not join"}
    try:
        _gather(store, world, set(answered), ranks, deadline)
        for rank, said in ranks.items():
            if "failure" in said:
                raise _join_error(f"rank {rank} of {world} cannot join: {said['failure']}")
        missing = [str(rank) for rank in range(1, world) if rank not in ranks]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise _join_error(
                f"after {seconds:g} s rank{plural} {', '.join(missing)} of {world} had not come to make this group"
            )
        meeting = _meeting(address_for(describe_rank(store), ranks.values()))
        numbers = [each["number"] for each in ranks.values()]
        store.set(ANSWER, json.dumps({"numbers": numbers, "meeting": meeting}))
        joined = _join_at(0, world, meeting, seconds, deadline)
        # The key of a group that exists is no longer needed there.
        answer = {}
        return joined
    except BaseException as error:
        answer = {"failure": f"{type(error).__name__}: {error}"}
        raise
    finally:
        numbers = [each["number"] for each in ranks.values()]
        # The store may have gone with the rank that serves it.
        with contextlib.suppress(RuntimeError):
            store.set(ANSWER, json.dumps({"numbers": answered if not numbers else numbers, **answer}))


def _gather(store, world, answered, ranks, deadline):
    """Fills `ranks` with what each other rank says of itself, unless that was answered for an earlier group."""

    def all_are_here():
        for rank in range(1, world):
            said = _read(store, _place(rank)) if rank not in ranks else None
            if said is not None and said["number"] not in answered:
                ranks[rank] = said
        return len(ranks) == world - 1

    poll(all_are_here, deadline)


def _answer(store, rank, number, seconds, deadline):
    """Waits for rank 0's answer to `number`."""

    def answer():
        found = _read(store, ANSWER)
        return found if found is not None and number in found["numbers"] else None

    found = poll(answer, deadline + GRACE)
    if found is None:
        raise _join_error(
            f"rank {rank} waited {seconds:g} s for rank 0 of the group, which has not said {location_of(store)} where "
            "it listens: see that rank 0 makes the group, too, and what it says"
        )
    if "meeting" not in found:
        raise _join_error(f"rank 0 of the group has failed to join: {found.get('failure', 'see what it says')}")
    return found["meeting"]


def _join_error(text):
    return make("join", text, None, True)
