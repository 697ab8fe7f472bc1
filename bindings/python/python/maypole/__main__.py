"""``python -m maypole run -n 4 program.py ARGUMENTS``: starts ranks on this machine."""

import argparse
import collections
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

# How long the other ranks may go on after one has failed, so that they can say what they saw.
GRACE = 5.0
# The most bytes of what a rank tells about itself in one line.
LONGEST = 64 << 20


def parse(arguments):
    """Our options come first. The rest is the program, whose options are none of ours."""
    parser = argparse.ArgumentParser(
        prog="python -m maypole", usage="%(prog)s run [-n RANKS] PROGRAM ARGUMENTS...", description=__doc__
    )
    parser.add_argument("command", choices=["run"])
    parser.add_argument("-n", "--ranks", type=int, default=os.cpu_count() or 1, help="how many ranks")
    ours = 1
    while ours < len(arguments) and arguments[ours] in ("-n", "--ranks", "-h", "--help"):
        ours += 1 if arguments[ours] in ("-h", "--help") else 2
    parsed = parser.parse_args(arguments[:ours])
    parsed.program = arguments[ours:]
    if parsed.ranks < 1:
        parser.error(f"-n {parsed.ranks}: a world has at least one rank")
    if not parsed.program:
        parser.error("run: name the program that each rank runs")
    return parsed


class Verdicts:
    """Listens to what ranks tell when they have failed: which rank failed first."""

    def __init__(self):
        self._culprits, self._readers = {}, []
        self.name = None
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # A name that the kernel chooses, which no file has.
            self._listener.bind("")
            self._listener.listen(64)
        except OSError:
            return  # Then the rank whose process ends first is named.
        self.name = self._listener.getsockname()[1:].decode()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            size = struct.calcsize("3i")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            if struct.unpack("3i", credentials)[1] != os.getuid():
                connection.close()
                continue
            reader = threading.Thread(target=self._read, args=(connection,), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, connection):
        with connection, connection.makefile("rb") as lines:
            try:
                while line := lines.readline(LONGEST):
                    status = json.loads(line)["status"]
                    if status.get("failure") is not None and status.get("culprit") is not None:
                        self._culprits[status["rank"]] = status["culprit"]
            except (OSError, ValueError, KeyError, TypeError):
                pass

    def first(self):
        """The rank that most name, once all ranks have ended; None if none is named."""
        for reader in self._readers:
            reader.join(GRACE)
        counts = collections.Counter(self._culprits.values())
        return min(counts, key=lambda rank: (-counts[rank], rank), default=None)


def start(rank, ranks, program, shared):
    here = {"MAYPOLE_RANK": str(rank), "MAYPOLE_WORLD": str(ranks), "MAYPOLE_ADDRESS": "127.0.0.1"}
    pipe = subprocess.PIPE
    environment = {**os.environ, **shared, **here}
    return subprocess.Popen([sys.executable, *program], env=environment, stdout=pipe, stderr=pipe)


def forward_lines(source, target, lock):
    """Passes whole lines on, so that ranks do not write into one another's."""
    for line in source:
        with lock:
            try:
                target.write(line if line.endswith(b"\n") else line + b"\n")
                target.flush()
            except BrokenPipeError:
                # Nobody reads any more. The ranks go on, and their output is dropped.
                continue


def code_of(process):
    """The exit code of a process as a shell tells it."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def wait(processes):
    """Waits for all. After the first failure the others have ``GRACE`` seconds. Returns the exit codes of
    the ranks that failed by themselves, by rank, in the order of their ends."""
    failed = {}
    deadline = None
    running = dict(enumerate(processes))
    while running:
        for rank, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[rank]
            if process.returncode != 0 and deadline != float("inf"):
                deadline = deadline or time.monotonic() + GRACE
                failed[rank] = code_of(process)
        if deadline is not None and time.monotonic() > deadline:
            for process in running.values():
                process.kill()
            deadline = float("inf")
        time.sleep(0.01)
    return failed


def main(arguments=None):
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    shared = {"MAYPOLE_JOB": secrets.token_hex(8), "MAYPOLE_JOB_KEY": secrets.token_hex(32)}
    processes, verdicts = [], Verdicts()
    if verdicts.name:
        shared["MAYPOLE_STATUS_SOCKET"] = verdicts.name

    def forward(number, _frame):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    # Ctrl-C reaches the ranks by the terminal; the launcher waits for them.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, forward)
    lock = threading.Lock()
    readers = []
    for rank in range(parsed.ranks):
        process = start(rank, parsed.ranks, parsed.program, shared)
        processes.append(process)
        for source, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
            reader = threading.Thread(target=forward_lines, args=(source, target, lock), daemon=True)
            reader.start()
            readers.append(reader)
    failed = wait(processes)
    for reader in readers:
        # A process that a rank has left behind may hold its pipe open.
        reader.join(GRACE)
    if not failed:
        return 0
    rank, first = next(iter(failed)), verdicts.first()
    because = ""
    if first in failed:
        rank = first
    elif first is not None:
        because = f", because rank {first} did not do its part"
    print(f"maypole: rank {rank} ended with code {failed[rank]}{because}", file=sys.stderr)
    return failed[rank]


if __name__ == "__main__":
    sys.exit(main())
