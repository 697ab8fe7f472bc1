"""Times calls in alternating rounds of one run, so that other load on the machine slows all of them alike.

Every rank of the run does the same. ``ranks`` is an object with ``barrier()``, ``most(number)``, the greatest
number of all ranks, and ``is_first``, true on one rank.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time

from maypole import _maypole

# Seconds that one call is repeated for in one round.
BUDGET = 0.05
MOST_CALLS = 2000
SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20)


def options(description):
    """The options of both benches."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="how often each library has its turn")
    parser.add_argument("--most", type=int, default=max(SIZES), help="bytes of the longest buffer")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute without end beside the ranks")
    return parser.parse_args()


@contextlib.contextmanager
def busy(processes):
    """Meanwhile ``processes`` processes compute, as a compiler or a data loader would."""
    # A rank that is killed closes the pipe, which ends them.
    code = "import os, sys, threading as t; t.Thread(target=lambda: os._exit(len(sys.stdin.read()))).start()\nwhile 1: pass"
    start = lambda: subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    with contextlib.ExitStack() as started:
        for _ in range(processes):
            started.callback(started.enter_context(start()).kill)
        yield


def seconds_a_call(call, times, ranks):
    """Seconds of one of ``times`` calls in a row, on the rank that needs the most."""
    ranks.barrier()
    since = time.perf_counter()
    for _ in range(times):
        call()
    return ranks.most(time.perf_counter() - since) / times


def times_for_budget(call, ranks):
    """How often ``call`` is repeated for about ``BUDGET`` seconds. Equal on all ranks."""
    times = 1
    while times < MOST_CALLS:
        # The shortest of some, because the first call connects, and others may be interrupted.
        shortest = min(seconds_a_call(call, times, ranks) for _ in range(3))
        if shortest * times > BUDGET / 4:
            return min(max(int(BUDGET / shortest), 1), MOST_CALLS)
        times *= 4
    return MOST_CALLS


def compare(calls, rounds, ranks):
    """Seconds of each of ``calls`` (functions by name) in each round. Odd rounds have the order reversed."""
    repeated = {name: times_for_budget(call, ranks) for name, call in calls.items()}
    seconds = {name: [] for name in calls}
    for at in range(rounds):
        for name in reversed(calls) if at % 2 else calls:
            seconds[name].append(seconds_a_call(calls[name], repeated[name], ranks))
    return seconds


def warn_if_not_optimised():
    """Prints a warning if this package was built without optimisation."""
    if not _maypole._IS_OPTIMIZED:
        print("This build of maypole is not optimised: its times say nothing. Build it with `maturin build --release`.\n")


def head(ours, theirs):
    warn_if_not_optimised()
    print(f"| call | bytes | {ours} (us) | {theirs} (us) | {theirs} / {ours} |\n|---|---|---|---|---|")


def row(call, size, ours, theirs):
    """A line of the table: medians over the rounds, and the median of the rounds' ratios."""
    ratio = statistics.median(their / our for our, their in zip(ours, theirs))
    ours, theirs = (f"{statistics.median(all) * 1e6:.1f}" for all in (ours, theirs))
    print(f"| {call} | {size} | {ours} | {theirs} | {ratio:.2f} |", flush=True)
